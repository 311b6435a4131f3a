// What anywidget loads. The trace comes in a trait, and more steps of a live run in messages.

import { failure } from "./host.mjs";
import { Player } from "./player.mjs";

// Messages that come before a view exists would be lost, so they are collected from the start.
export function createWidget() {
  let number = 0;
  const feeds = new Map();
  return {
    initialize({ model }) {
      const feed = new Feed(model);
      feeds.set(model.get("_key"), feed);
      return () => feeds.delete(model.get("_key"));
    },
    render({ model, el }) {
      const feed = feeds.get(model.get("_key")) ?? new Feed(model);
      number += 1;
      return show(feed, el, `mp-${model.get("_key")}-${number}`);
    },
  };
}

class Feed {
  constructor(model) {
    this.payload = model.get("_payload");
    this.atEnd = model.get("_at_end");
    this.steps = [...(this.payload.steps ?? [])];
    this.views = new Set();
    model.on("msg:custom", (message) => {
      if (message.type === "steps") this.#take(message.first, message.steps, model);
    });
    model.on("change:_payload", () => this.#take(0, model.get("_payload").steps, model));
  }

  // Take steps that follow those we have; a gap is asked for again.
  #take(first, steps, model) {
    if (first > this.steps.length) {
      model.send({ type: "resend", first: this.steps.length });
      return;
    }
    const fresh = steps.slice(this.steps.length - first);
    this.steps.push(...fresh);
    if (fresh.length) for (const view of this.views) view(fresh);
  }
}

function show(feed, place, prefix) {
  let player = null;
  try {
    player = new Player({ ...feed.payload, steps: feed.steps }, prefix);
  } catch (error) {
    place.append(failure("This trace", error));
    return undefined;
  }
  place.append(player.root);
  if (feed.atEnd) player.act("last");
  else player.goTo({ number: 0, event: 2 ** 20 }, false);
  const view = (steps) => {
    try {
      player.append(steps, true);
    } catch (error) {
      place.append(failure("This trace", error));
      feed.views.delete(view);
    }
  };
  feed.views.add(view);
  return () => {
    feed.views.delete(view);
    player.destroy();
  };
}
