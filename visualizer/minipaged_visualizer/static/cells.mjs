// What a picture of the pool says about one block, whether it is drawn in SVG or on a canvas.

import { listed, plural } from "./dom.mjs";
import { letters } from "./marks.mjs";

const MEANINGS = {
  "!": "just evicted", "»": "just copied to", "«": "just copied from", "↓": "just moved out",
  "↑": "just moved in", "+": "just taken", "=": "just shared", "-": "just given back",
};

// The pool, or the swap pool if `swap` is true, as an array-like source of cells.
export class Cells {
  constructor(frame, swap = false) {
    const { state, owners, swapOwners, changes, focus, block } = frame;
    this.size = state.blockSize;
    this.counts = swap ? state.swapRefCounts : state.refCounts;
    this.contents = swap ? state.swapContents : state.contents;
    this.hashes = swap ? [] : state.hashes;
    this.owners = swap ? swapOwners : owners;
    this.signs = swap ? changes.swapBlocks : changes.blocks;
    this.focus = focus;
    this.selected = swap ? null : block;
  }

  get length() {
    return this.counts.length;
  }

  at(block) {
    const count = this.counts[block];
    const cached = count === 0 && Boolean(this.hashes[block]);
    const owners = this.owners.get(block) ?? [];
    return {
      block,
      count,
      owners: owners.map(([seq]) => seq),
      state: count > 0 ? "used" : cached ? "cached" : "free",
      filled: count > 0 || cached ? this.contents[block].length : 0,
      size: this.size,
      sign: this.signs.get(block) ?? "",
      isFocused: owners.some(([seq]) => seq === this.focus),
      isSelected: block === this.selected,
    };
  }
}

export function keyOf(cell) {
  const { owners, state, filled, sign, isFocused, isSelected } = cell;
  return `${state} ${filled} ${sign} ${isFocused} ${isSelected} ${owners.join()}`;
}

// A cell in words, for those who hear it.
export function inWords(cell, noun = "block") {
  const parts = [`${noun} ${cell.block}`];
  if (cell.state === "used") {
    parts.push(`used by ${listed(cell.owners.map(letters))}`);
    if (cell.count > 1) parts.push(plural(cell.count, "reference"));
  } else {
    parts.push(cell.state === "cached" ? "free, but cached" : "free");
  }
  if (cell.state !== "free") parts.push(`${cell.filled} of ${cell.size} tokens`);
  if (cell.sign) parts.push(MEANINGS[cell.sign]);
  return parts.join(", ");
}
