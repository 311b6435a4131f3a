// The same moment as plain tables, for those who read or hear rather than look.

import { Kept, el, listed, refill, update } from "./dom.mjs";
import { letters } from "./marks.mjs";
import { byStatus } from "./sequences.mjs";

const MOST_ROWS = 400;

export class TextTable {
  constructor() {
    this.sequences = new Table("Sequences", ["sequence", "status", "blocks", "swap blocks", "tokens"]);
    this.blocks = new Table("Blocks in use or cached", ["block", "references", "held by", "filled", "text"]);
    this.root = el("section", { class: "mp-text", "aria-label": "Memory as text", tabindex: 0 },
      this.sequences.root, this.blocks.root);
  }

  draw({ state, owners }) {
    this.sequences.draw(byStatus(state.sequences), (seq) => [
      letters(seq), state.sequences.get(seq).status, (state.tables.get(seq) ?? []).join(", ") || "none",
      (state.swapTables.get(seq) ?? []).join(", ") || "none", state.numTokens.get(seq) ?? 0,
    ]);
    const told = [...state.refCounts.keys()].filter((block) => state.refCounts[block] || state.hashes[block]);
    this.blocks.draw(told, (block) => {
      const held = (owners.get(block) ?? []).map(([seq]) => letters(seq));
      const tokens = state.contents[block].map(({ text }) => text).join("");
      return [block, state.refCounts[block], listed(held) || "nobody: cached",
        `${state.contents[block].length} of ${state.blockSize}`, tokens];
    });
  }
}

class Table {
  constructor(caption, heads) {
    this.words = caption;
    this.caption = el("caption");
    this.body = el("tbody");
    this.kept = new Kept();
    this.root = el("table", {}, this.caption,
      el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))), this.body);
  }

  // Draw a row for each of the first things; those that say the same as before are kept.
  draw(things, rowOf) {
    const rows = things.slice(0, MOST_ROWS).map(rowOf);
    refill(this.caption, this.words,
      things.length > rows.length && `, the first ${rows.length} of ${things.length}`);
    update(this.body, rows.map((row) => this.kept.get(row[0], row.join("\n"), () => rowElement(row))));
    this.kept.sweep();
  }
}

function rowElement([name, ...values]) {
  return el("tr", {}, el("th", { scope: "row" }, String(name)),
    ...values.map((value) => el("td", {}, el("bdi", {}, String(value)))));
}
