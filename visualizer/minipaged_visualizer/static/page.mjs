// A page that stands alone: the trace lies in it, and the player takes the whole window.

import { startPage } from "./host.mjs";
import { Player } from "./player.mjs";

export function start(document) {
  startPage(document, {
    what: "This trace",
    heading: "minipaged: a run, played",
    make: (payload) => new Player(payload),
    go: (player, hash) => goToPlace(player, hash) || player.goTo({ number: 0, event: 2 ** 20 }, false),
  });
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
