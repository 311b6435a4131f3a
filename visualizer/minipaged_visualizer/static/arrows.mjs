// Orthogonal arrows from the focused sequence's table to the blocks in the pool.
//
// An arrow leaves its row, goes along a lane of its own in the gutter, then through the gap above the
// block's row. Lanes are ordered so that arrows in one direction never cross.

import { refill, svg } from "./dom.mjs";

const MOST_ARROWS = 24;
const HEAD = 5;

export class Arrows {
  constructor(stage) {
    this.stage = stage;
    this.root = svg("svg", { class: "mp-arrows", "aria-hidden": "true" });
  }

  draw(table, pool, isOn) {
    const stage = this.stage.getBoundingClientRect();
    const from = table.scroller.getBoundingClientRect();
    const to = pool.root.getBoundingClientRect();
    if (!isOn || to.left < from.right) { // stacked: numbers must do
      refill(this.root);
      return;
    }
    const ends = visible(table.entries, from).map((entry) => this.#ends(entry, pool, stage));
    const [lanes, heights] = [orderLanes(ends), spread(ends)];
    const [left, right] = [from.right - stage.left, to.left - stage.left];
    const width = (right - left) / (ends.length + 1);
    refill(this.root, ends.map((end, index) => {
      const x = left + width * (lanes[index] + 1);
      const y = end.y - end.gap * (1 - heights[index]);
      const path = `M${end.x0} ${end.y0}H${x}V${y}H${end.x}V${end.y - 1}`;
      const head = `M${end.x - HEAD} ${end.y - HEAD - 1}h${2 * HEAD}l${-HEAD} ${HEAD}z`;
      return svg("g", { class: end.isChanged ? "mp-arrow mp-changed" : "mp-arrow" },
        svg("path", { class: "mp-casing", d: path }),
        svg("path", { class: "mp-line", d: path }),
        svg("path", { class: "mp-head", d: head }));
    }));
  }

  #ends({ cell, block, isChanged }, pool, stage) {
    const box = cell.getBoundingClientRect();
    const anchor = pool.anchor(block);
    return {
      isChanged,
      x0: box.right - stage.left,
      y0: box.top + box.height / 2 - stage.top,
      x: anchor.x - stage.left,
      y: anchor.y - stage.top,
      gap: anchor.gap,
    };
  }
}

// The rows that can be seen; of too many, the changed ones and the last.
function visible(entries, box) {
  const seen = entries.filter(({ cell }) => {
    const { top, bottom } = cell.getBoundingClientRect();
    const middle = (top + bottom) / 2;
    return middle > box.top && middle < box.bottom;
  });
  if (seen.length <= MOST_ARROWS) return seen;
  return seen.filter((entry, index) => entry.isChanged || index >= seen.length - MOST_ARROWS);
}

// Part the arrows that run through the same gap: from its top (0) to its bottom (1).
function spread(ends) {
  const rows = new Map();
  for (const { y } of ends) rows.set(y, (rows.get(y) ?? 0) + 1);
  const used = new Map();
  return ends.map(({ y }) => {
    used.set(y, (used.get(y) ?? 0) + 1);
    return 0.1 + (0.6 * used.get(y)) / (rows.get(y) + 1);
  });
}

// Lanes from the left: those that go up from top to bottom, then those that go down, reversed.
function orderLanes(ends) {
  const up = ends.filter(({ y, y0 }) => y < y0);
  const down = ends.filter(({ y, y0 }) => y >= y0).reverse();
  const order = [...up, ...down];
  return ends.map((end) => order.indexOf(end));
}
