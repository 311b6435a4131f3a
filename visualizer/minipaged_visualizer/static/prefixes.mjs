// The prefix tree: which full blocks can be found by their content, what follows what, and the hits.

import { el, plural, refill, token } from "./dom.mjs";
import { History } from "./history.mjs";
import { chip } from "./marks.mjs";

const MOST_NODES = 300;
const MOST_CHIPS = 6;

export class Prefixes {
  constructor(onSelect) {
    this.onSelect = onSelect;
    this.root = el("section", { class: "mp-prefixes", "aria-label": "Prefix tree" });
  }

  draw(frame) {
    const { state, timeline } = frame;
    const { parentOfHash } = timeline.history;
    const blocks = [...state.hashes.keys()].filter((block) => state.hashes[block] !== null);
    const known = new Set(blocks.map((block) => state.hashes[block]));
    const children = new Map();
    for (const block of blocks) {
      const parent = parentOfHash.get(state.hashes[block]);
      const key = known.has(parent) ? parent : parent ? "lost" : "";
      if (!children.has(key)) children.set(key, []);
      children.get(key).push(block);
    }
    this.left = MOST_NODES;
    refill(this.root,
      el("h3", {}, "Prefix tree"),
      el("p", { class: "mp-quiet" }, blocks.length
        ? `${plural(blocks.length, "full block")} can be found by content and shared`
        : "no full block yet: only full blocks can be found and shared"),
      this.#list("", children, frame),
      children.has("lost") && el("p", { class: "mp-quiet" }, "their beginning was evicted:"),
      this.#list("lost", children, frame),
      this.left < 0 && el("p", { class: "mp-quiet" }, "and more"));
  }

  #list(key, children, frame) {
    const nodes = children.get(key);
    return nodes && el("ul", { class: "mp-tree" }, ...nodes.map((block) => this.#node(block, children, frame)));
  }

  #node(block, children, frame) {
    this.left -= 1;
    if (this.left < 0) return null;
    const { state, owners, timeline, position, changes } = frame;
    const hash = state.hashes[block];
    const hits = History.count(timeline.history.hitsOfHash.get(hash), position);
    const held = owners.get(block) ?? [];
    const looks = `${held.length ? "" : "mp-is-cached"} ${changes.blocks.get(block) === "=" ? "mp-changed" : ""}`;
    return el("li", {},
      el("span", { class: `mp-node ${looks}` },
        el("button", { class: "mp-block-button", onclick: () => this.onSelect(block) }, String(block)),
        el("span", { class: "mp-slots" }, ...state.contents[block].slice(0, 16).map(({ text }) => token(text, "mp-tok"))),
        ...held.slice(0, MOST_CHIPS).map(([seq]) => chip(seq)),
        held.length > MOST_CHIPS && el("span", { class: "mp-quiet" }, `and ${held.length - MOST_CHIPS} more`),
        hits > 0 && el("span", { class: "mp-count" }, plural(hits, "hit"))),
      this.#list(hash, children, frame));
  }
}
