// A page that stands alone: the trace lies in it, and the player takes the whole window.

import { el } from "./dom.mjs";
import { Player, failure } from "./player.mjs";

// Show the trace that lies in the element #payload. `#12` or `#12.3` in the address names a place.
export function start(document) {
  const main = document.querySelector("main");
  try {
    const player = new Player(JSON.parse(document.getElementById("payload").textContent));
    const go = () => goToPlace(player, document.location.hash) || player.goTo({ number: 0, event: 2 ** 20 }, false);
    go();
    main.append(el("h1", { class: "mp-unseen" }, "minipaged: a run, played"), player.root);
    addEventListener("hashchange", go);
    // Keys count wherever the focus is, as there is nothing else in the window.
    document.addEventListener("keydown", (event) => {
      if (event.target === document.body) player.root.dispatchEvent(new KeyboardEvent("keydown", event));
    });
  } catch (error) {
    main.append(failure(error));
  }
}

// `#12` is the end of the step of that number, `#12.3` the place after its third event.
function goToPlace(player, hash) {
  const found = /^#(\d+)(?:\.(\d+))?/.exec(hash);
  if (!found) return false;
  const number = player.timeline.steps.findIndex(({ step }) => step >= Number(found[1]));
  if (number < 0) return false;
  player.goTo({ number, event: found[2] ? Number(found[2]) : 2 ** 20 }, Boolean(found[2]));
  return true;
}
