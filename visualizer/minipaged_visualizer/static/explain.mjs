// "Explain this block": who holds it, what lies in it, and all that ever happened to it, with why.

import { el, listed, plural, refill } from "./dom.mjs";
import { captionOf } from "./frame.mjs";
import { newestPlace, positionAfter } from "./history.mjs";
import { chip, letters } from "./marks.mjs";
import { slots } from "./sequences.mjs";

const MOST_LINES = 200;

export class Explain {
  constructor(onGo, onSelect) {
    this.onGo = onGo;
    this.onSelect = onSelect;
    this.root = el("section", { class: "mp-explain", "aria-label": "Explain this block" });
  }

  draw(frame) {
    const { block } = frame;
    if (block === null) {
      refill(this.root, el("h3", {}, "Explain this block"),
        el("p", { class: "mp-quiet" }, "Choose a block in the pool or in the table to see its whole history."));
      return;
    }
    refill(
      this.root,
      el("h3", {}, `Block ${block} explained`, el("button", {
        class: "mp-small", onclick: () => this.onSelect(null),
      }, "close")),
      ...this.#now(frame),
      el("h4", {}, "Its history"),
      this.#history(frame),
    );
  }

  #now({ state, owners, block }) {
    const held = owners.get(block) ?? [];
    const count = state.refCounts[block];
    const hash = state.hashes[block];
    const words = count
      ? `held by ${listed(held.map(([seq, index]) => `${letters(seq)} as its logical block ${index}`))}: ${plural(count, "reference")}`
      : hash ? "free, but cached: who has the same prefix can share it" : "free";
    const contents = count || hash ? state.contents[block] : [];
    return [
      el("p", { class: "mp-facts" }, ...held.slice(0, 8).map(([seq]) => chip(seq)), words),
      contents.length > 0 && slots(contents, contents.length, state.blockSize),
      hash && el("p", { class: "mp-quiet" }, `hash ${hash.slice(0, 12)}…, ${this.#parent(hash, state)}`),
    ];
  }

  #parent(hash, state) {
    const parent = this.parents?.get(hash);
    if (!parent) return "the first block of a prefix";
    const holder = state.hashes.indexOf(parent);
    return `after ${parent.slice(0, 12)}…${holder >= 0 ? ` (block ${holder})` : ", which is no longer here"}`;
  }

  #history(frame) {
    const { timeline, block, position } = frame;
    this.parents = timeline.history.parentOfHash;
    const here = newestPlace(position);
    const lines = told(timeline.history.ofBlock.get(block) ?? [], frame);
    const now = lines.findIndex(({ place }) => place > here);
    const middle = now < 0 ? lines.length : now;
    const start = Math.max(middle - MOST_LINES / 2, 0);
    const shown = lines.slice(start, start + MOST_LINES);
    return el("ol", { class: "mp-history" },
      start > 0 && el("li", { class: "mp-quiet" }, `${start} earlier`),
      ...shown.map((line) => this.#line(line, here)),
      lines.length > start + MOST_LINES
        && el("li", { class: "mp-quiet" }, `${lines.length - start - MOST_LINES} later`));
  }

  #line({ place, sign, text, step }, here) {
    const when = place > here ? "mp-later" : place === here ? "mp-now" : "";
    return el("li", { class: when },
      el("button", { class: "mp-line-button", onclick: () => this.onGo(positionAfter(place)) },
        el("span", { class: "mp-quiet" }, `${step} `), el("b", {}, sign), ` ${text}`));
  }
}

// The lines of a block's history; a step of everybody is told for those who hold this block only.
function told(places, frame) {
  const { steps, history } = frame.timeline;
  const writers = history.writersOfBlock.get(frame.block) ?? [];
  return places.map((place, index) => {
    const { number, event: after } = positionAfter(place);
    const step = steps[number];
    const { sign, text } = captionOf(step, after - 1, frame.story) ?? { sign: "", text: "" };
    return { place, sign, step: step.step, text: alone(step.events[after - 1], writers[index], frame.story) ?? text };
  });
}

// A write of many sequences, in the caption's own words, for the one that wrote to this block.
function alone(event, writer, story) {
  if (writer === null || event.seqs.length === 1) return null;
  const at = event.seqs.indexOf(writer);
  return story.writeWords.replace("{who}", letters(writer)).replace("{text}", () => event.texts[at]);
}
