// The same moment as plain tables, for those who read or hear rather than look.

import { el, listed, refill } from "./dom.mjs";
import { letters } from "./marks.mjs";

const MOST_ROWS = 400;

export class TextTable {
  constructor() {
    this.root = el("section", { class: "mp-text", "aria-label": "Memory as text", tabindex: 0 });
  }

  draw({ state, owners }) {
    const sequences = [...state.sequences].map(([seq, { status }]) => [
      letters(seq), status, (state.tables.get(seq) ?? []).join(", ") || "none",
      (state.swapTables.get(seq) ?? []).join(", ") || "none", state.numTokens.get(seq) ?? 0,
    ]);
    const blocks = [];
    state.refCounts.forEach((count, block) => {
      if (!count && !state.hashes[block]) return;
      const held = (owners.get(block) ?? []).map(([seq]) => letters(seq));
      const tokens = state.contents[block].map(({ text }) => text).join("");
      blocks.push([block, count, listed(held) || "nobody: cached",
        `${state.contents[block].length} of ${state.blockSize}`, tokens]);
    });
    refill(
      this.root,
      table("Sequences", ["sequence", "status", "blocks", "swap blocks", "tokens"], sequences),
      table("Blocks in use or cached", ["block", "references", "held by", "filled", "text"], blocks),
    );
  }
}

function table(caption, heads, rows) {
  const left = rows.length - MOST_ROWS;
  return el("table", {},
    el("caption", {}, caption, left > 0 && `, the first ${MOST_ROWS}`),
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...rows.slice(0, MOST_ROWS).map((row) => el("tr", {},
      ...row.map((value, index) => (index
        ? el("td", {}, el("bdi", {}, String(value)))
        : el("th", { scope: "row" }, String(value))))))));
}
