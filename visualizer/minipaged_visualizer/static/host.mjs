// Where a view lives: alone in a page, or in a notebook's cell. One that can't be built is a message.

import { el, refill } from "./dom.mjs";

export function failure(what, error) {
  return refill(el("p", { class: "minipaged mp-error", role: "alert" }), `${what} can't be shown: ${error.message}`);
}

// Show what lies in the element #payload. `make` builds the view, `go(view, hash)` takes it to the
// place that the address names; `what` it shows stands in the message if that fails.
export function startPage(document, { what, heading, make, go }) {
  const main = document.querySelector("main");
  try {
    const view = make(JSON.parse(document.getElementById("payload").textContent));
    const goThere = () => go(view, document.location.hash);
    goThere();
    main.append(el("h1", { class: "mp-unseen" }, heading), view.root);
    addEventListener("hashchange", goThere);
    // Keys count wherever the focus is, as there is nothing else in the window.
    document.addEventListener("keydown", (event) => {
      if (event.target === document.body) view.root.dispatchEvent(new KeyboardEvent("keydown", event));
    });
  } catch (error) {
    main.append(failure(what, error));
  }
}

// What anywidget loads for a view whose payload never changes.
export function widgetOf(what, make) {
  return {
    render({ model, el: place }) {
      try {
        const view = make(model.get("_payload"));
        place.append(view.root);
        return () => view.destroy();
      } catch (error) {
        place.append(failure(what, error));
        return undefined;
      }
    },
  };
}
