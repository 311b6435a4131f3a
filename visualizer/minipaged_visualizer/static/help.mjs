// The page behind `?`: the keys, and what the signs in the pictures mean.

import { el } from "./dom.mjs";

const KEYS = [
  ["Space", "play, or pause"],
  ["→ ←", "one step forward, back"],
  ["n p", "one event forward, back (also Shift with → and ←)"],
  [". ,", "next, previous event of the chosen block, or of the sequence in focus"],
  ["Home End", "to the start, to the newest step"],
  ["+ -", "faster, slower"],
  ["e", "play event by event, or step by step"],
  ["] [", "next, previous sequence (in their list also ↓ ↑); 0 lets the focus follow again"],
  ["Tab, then arrows", "into the pool: choose a block"],
  ["b", "back row: large type, few things at a time"],
  ["x", "the prefix tree"],
  ["t", "all as a text table"],
  ["a", "arrows on, off"],
  ["?", "this page; Esc closes it"],
];
const SIGNS = [
  ["A", "a block of A, coloured as far as it is filled"],
  ["×2", "two references: the block is shared, and nobody writes to it"],
  ["#", "cached: free, but who has the same prefix can share it"],
  ["+ =", "just taken from the free blocks; just shared"],
  ["« »", "copied from, copied to: copy-on-write"],
  ["! -", "evicted, its prefix is forgotten; given back"],
  ["↓ ↑", "moved out to the swap pool; moved back in"],
  ["□", "outlined darkly: held by the sequence in focus; in colour: changed just now"],
  ["·", "an empty slot: reserved for the next tokens, or wasted"],
];

export class Help {
  constructor(onClose, keys = KEYS, signs = SIGNS) {
    this.root = el("dialog", { class: "mp-help", "aria-label": "Keys and signs" },
      el("div", { class: "mp-help-columns" }, list("Keys", keys), list("Signs", signs)),
      el("button", { class: "mp-small", autofocus: true, onclick: onClose }, "close"));
    this.root.addEventListener("close", onClose);
  }

  draw({ options }) {
    if (options.help && !this.root.open) {
      this.root.show();
      this.root.scrollIntoView({ block: "nearest" });
    }
    else if (!options.help && this.root.open) this.root.close();
  }
}

function list(title, rows) {
  const lines = rows.flatMap(([name, meaning]) => [el("dt", {}, name), el("dd", {}, meaning)]);
  return el("div", {}, el("h3", {}, title), el("dl", {}, ...lines));
}
