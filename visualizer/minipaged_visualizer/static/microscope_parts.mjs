// The parts of the microscope: programs, source, block table, pool.

import { el, listed, refill } from "./dom.mjs";
import { chip, letters } from "./marks.mjs";

// The grid of programs: which have run, which runs, and which wait.
export class Programs {
  constructor(run, onProgram) {
    this.cells = run.programs.map((program, index) => el("button", {
      class: "mk-program", onclick: () => onProgram(index), title: nameOf(run, program),
    }, program.seq >= 0 && el("b", {}, letters(program.seq)), program.seq >= 0 && " ",
    placeIn(run.recording.launches[program.launch].grid, program.program)));
    const groups = run.recording.launches.map(({ kernel, grid }, launch) => el("div", { class: "mk-launch" },
      el("h4", {}, `${kernel} `, el("small", { class: "mp-quiet" }, `grid ${placeIn(grid, grid)}`)),
      el("div", { class: "mk-grid" },
        ...this.cells.filter((_, index) => run.programs[index].launch === launch))));
    this.root = el("section", { class: "mk-programs", "aria-label": "Programs" }, el("h3", {}, "Programs"), ...groups);
  }

  draw({ number }) {
    this.cells.forEach((cell, index) => {
      cell.className = `mk-program mk-${index < number ? "done" : index === number ? "runs" : "waits"}`;
      cell.setAttribute("aria-current", index === number ? "true" : "false");
    });
  }
}

// A place in a grid, without the axes that are of size 1.
export function placeIn(grid, place) {
  const last = Math.max(0, grid.findLastIndex((size) => size > 1));
  return place.slice(0, last + 1).join(", ");
}

export function nameOf({ recording }, { launch, program, seq, rows }) {
  const words = [`program (${placeIn(recording.launches[launch].grid, program)})`];
  if (seq >= 0) words.push(`sequence ${letters(seq)}`);
  if (rows.length && rows.length <= 4) words.push(listed(rows));
  return words.join(", ");
}

// The kernel's source, with the lines that run now.
export class Source {
  constructor() {
    this.lines = el("ol", { class: "mk-source", tabindex: 0, "aria-label": "Source of the kernel" });
    this.heading = el("h3");
    this.root = el("section", { class: "mk-code" }, this.heading, this.lines);
  }

  draw({ launch, step }) {
    if (this.launch !== launch) this.#fill(launch);
    const { first_line: first } = launch;
    [...this.lines.children].forEach((line, index) => {
      const isNow = index + first >= step.line && index + first <= step.last_line;
      line.classList.toggle("mk-now", isNow);
      if (isNow) line.setAttribute("aria-current", "true");
      else line.removeAttribute("aria-current");
    });
    const [top, bottom] = [this.lines.children[step.line - first], this.lines.children[step.last_line - first]];
    if (!top || !bottom) return;
    const middle = (top.offsetTop + bottom.offsetTop + bottom.offsetHeight) / 2;
    this.lines.scrollTop = middle - this.lines.clientHeight / 2;
  }

  #fill(launch) {
    this.launch = launch;
    refill(this.heading, launch.kernel, " ", el("small", {}, launch.file));
    refill(this.lines, ...launch.source.map((text, index) => el("li", { value: launch.first_line + index },
      el("span", { class: "mk-number", "aria-hidden": "true" }, launch.first_line + index),
      el("code", { class: text.trim().startsWith("#") ? "mk-comment" : "" }, ...codeOf(text)))));
  }
}

// A line, with its comment apart.
function codeOf(text) {
  const at = text.indexOf("  # ");
  if (at < 0) return [text || " "];
  return [text.slice(0, at), el("span", { class: "mk-comment" }, text.slice(at))];
}

// The block table that the program follows, from logical to physical.
export class Table {
  constructor() {
    this.heading = el("h3");
    this.scroller = el("div", { class: "mk-table-box", tabindex: 0, role: "group", "aria-label": "Entries" });
    this.root = el("section", { class: "mk-table", "aria-label": "Block table" }, this.heading, this.scroller);
  }

  draw({ run, program, sequence, marks }) {
    if (!sequence) {
      refill(this.heading, "Block table");
      refill(this.scroller, el("p", { class: "mp-quiet" }, "This program follows none: it is told where to read and write."));
      this.entries = [];
      return;
    }
    refill(this.heading, chip(program.seq), "block table");
    this.entries = sequence.blocks.map((block, index) => {
      const mark = marks.get(block) ?? "";
      const cell = el("td", {}, block);
      const tokens = `${index * run.size}–${Math.min(sequence.num_tokens, (index + 1) * run.size) - 1}`;
      const row = el("tr", { class: mark ? `mk-${mark}` : "" },
        el("th", { scope: "row" }, index), el("td", { class: "mp-quiet" }, tokens),
        el("td", { class: "mk-what" }, WHAT[mark] ?? ""), cell);
      return { row, cell, block, isChanged: mark === "now" || mark === "write" };
    });
    refill(this.scroller, el("table", { class: "mk-entries" },
      el("thead", {}, el("tr", {}, ...["entry", "tokens", "state", "block"].map((h) => el("th", { scope: "col" }, h)))),
      el("tbody", {}, ...this.entries.map(({ row }) => row))));
  }
}

const FEW_BLOCKS = 20;
const WHAT = { read: "read", now: "now", ahead: "", write: "write", written: "written" };
const MEANING = { read: "read", now: "being read", ahead: "to come", write: "being written", written: "written" };

// The pool: every block, its slots, whose it is, and what this program does with it.
export class Pool {
  constructor(run) {
    this.cells = Array.from({ length: run.recording.num_blocks }, (_, block) => new PoolCell(run, block));
    const few = run.recording.num_blocks <= FEW_BLOCKS;
    this.grid = el("div", { class: few ? "mk-pool mk-few" : "mk-pool", role: "list", "aria-label": "Pool of blocks" },
      ...this.cells.map(({ root }) => root));
    this.legend = el("p", { class: "mp-legend" }, ...(run.hasWrites ? ["write", "written", "read", "ahead"] : ["now", "read", "ahead"]).map((mark) => el("span", { class: "mp-key" },
      el("i", { class: `mk-swatch mk-${mark}` }), MEANING[mark])));
    this.root = el("section", { class: "mk-pool-box" },
      el("h3", {}, "Pool ", el("small", {}, `${run.recording.num_blocks} blocks of ${run.size}`)), this.grid, this.legend);
  }

  draw({ marks, step, tile }) {
    const slots = new Set(step.kind === "update" ? tile?.slots ?? [] : step.slots);
    for (const cell of this.cells) cell.draw(marks.get(cell.block), slots);
  }

  // Where an arrow to a block ends, in pixels of the window.
  anchor(block) {
    const { left, top, width } = this.cells[block].root.getBoundingClientRect();
    return { x: left + width / 2, y: top, gap: 12 };
  }
}

class PoolCell {
  constructor(run, block) {
    this.block = block;
    this.size = run.size;
    this.owners = run.owners.get(block) ?? [];
    const filled = Math.max(0, ...this.owners.map(({ seq, index }) => run.recording.sequences[seq].num_tokens - index * run.size));
    this.filled = Math.min(run.size, filled);
    this.slots = Array.from({ length: run.size }, (_, slot) => el("i", { class: slot < this.filled ? "mk-slot mk-filled" : "mk-slot" }));
    this.root = el("div", { class: "mk-cell", role: "listitem", "data-block": block },
      el("span", { class: "mk-cell-head" }, el("b", {}, block), el("span", {}, this.owners.map(({ seq }) => letters(seq)).join(""))),
      el("span", { class: "mk-slots" }, ...this.slots));
  }

  draw(mark, slots) {
    this.root.className = `mk-cell ${this.owners.length ? "mk-held" : "mk-free"} ${mark ? `mk-${mark}` : ""}`;
    const held = this.owners.length ? `held by ${listed(this.owners.map(({ seq }) => letters(seq)))}` : "free";
    this.root.setAttribute("aria-label", [`block ${this.block}`, held, MEANING[mark]].filter(Boolean).join(", "));
    this.slots.forEach((slot, index) => {
      slot.classList.toggle("mk-touched", slots.has(this.block * this.size + index));
    });
  }
}
