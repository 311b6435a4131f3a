// A copy-on-write in three pictures: before, copy, after. Large, for the back row.

import { el, keepingFocus, listed, refill, svg } from "./dom.mjs";
import { ownersOf } from "./frame.mjs";
import { chip, letters } from "./marks.mjs";
import { slots } from "./sequences.mjs";

const MOST_CHIPS = 6;

export class Closeup {
  constructor() {
    this.root = el("section", { class: "mp-closeup", "aria-label": "Copy-on-write, close up" });
    this.chosen = 0;
  }

  // Draw the copy that is marked; of several in a step, one at a time.
  draw(frame) {
    const copies = copiesIn(frame);
    this.root.hidden = !copies.length;
    if (!copies.length) return;
    this.chosen = Math.min(this.chosen, copies.length - 1);
    const index = copies[this.chosen];
    refill(
      this.root,
      el("h3", {}, "Copy-on-write", copies.length > 1 && this.#chooser(copies, frame)),
      el("ol", { class: "mp-acts" }, ...acts(frame, index)),
    );
  }

  #chooser(copies, frame) {
    return copies.map((index, number) => {
      const { seq } = frame.step.events[index];
      return el("button", {
        class: "mp-small", "aria-pressed": number === this.chosen,
        onclick: () => {
          this.chosen = number;
          keepingFocus(this.root, () => this.draw(frame));
        },
      }, letters(seq));
    });
  }
}

function copiesIn({ step, position, options }) {
  if (!step) return [];
  const happened = [...step.events.keys()].slice(0, position.event);
  const marked = options.byEvent ? happened.slice(-1) : happened;
  return marked.filter((index) => step.events[index].kind === "copy");
}

function acts(frame, index) {
  const { timeline, step, position } = frame;
  const { seq, index: entry, source, target } = step.events[index];
  const before = timeline.peek({ number: position.number, event: index });
  const owners = (ownersOf(before.tables).get(source) ?? []).map(([owner]) => owner);
  const others = owners.filter((owner) => owner !== seq);
  const contents = before.contents[source];
  const { blockSize: size } = before;
  const next = tokenToCome(step, index, seq);
  const written = next ? [...contents, next] : contents;
  const who = letters(seq);
  return [
    act("before", `${listed(owners.map(letters))} share block ${source}. ${who} wants to write, but the others read it too.`,
      block(source, owners, contents, contents.length, size)),
    act("copy", `${who} takes block ${target} and copies what is in block ${source}.`,
      block(source, owners, contents, contents.length, size),
      arrow(),
      block(target, [], contents, 0, size, "mp-new-block")),
    act("after", `Row ${entry} of ${who}'s table now leads to block ${target}, and ${who} writes there. Block ${source} stays as it is.`,
      block(source, others, contents, contents.length, size),
      block(target, [seq], written, contents.length, size, "mp-new-block")),
  ];
}

// The token that is written to the copy, in the same step.
function tokenToCome(step, after, seq) {
  for (const event of step.events.slice(after + 1)) {
    const at = event.kind === "write" ? event.seqs.indexOf(seq) : -1;
    if (at >= 0) return { id: event.tokens[at], text: event.texts[at] };
    if (event.kind === "prefill" && event.seq === seq) {
      return { id: event.tokens[0], text: event.texts[0] };
    }
  }
  return null;
}

function act(name, words, ...pictures) {
  return el("li", {}, el("b", { class: "mp-act" }, name), el("div", { class: "mp-picture" }, ...pictures),
    el("p", {}, words));
}

function block(number, owners, contents, old, size, extra = "") {
  return el("div", { class: `mp-big ${extra}` },
    el("div", { class: "mp-big-head" },
      el("span", { class: "mp-big-number" }, `block ${number}`),
      ...owners.slice(0, MOST_CHIPS).map((seq) => chip(seq)),
      owners.length > MOST_CHIPS && "…",
      owners.length > 1 && el("span", { class: "mp-count" }, `×${owners.length}`)),
    slots(contents, old, size));
}

function arrow() {
  const box = { viewBox: "0 0 24 40", class: "mp-down", "aria-hidden": "true" };
  return svg("svg", box, svg("path", { d: "M9 2h6v22h7L12 38 2 24h7z" }));
}
