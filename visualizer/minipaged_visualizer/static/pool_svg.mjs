// A pool of up to 1024 blocks as SVG: every block is an element that can be clicked and heard.
//
// Only cells that changed since the last picture are drawn again. What is heard and clicked lies
// above what is seen: an option's name is its label alone, not the letters in its picture.

import { refill, svg } from "./dom.mjs";
import { inWords, keyOf } from "./cells.mjs";
import { letters } from "./marks.mjs";

// Up to `most` blocks: columns, size of a cell, gaps, height of its head, size of its letters.
const SHAPES = [
  { most: 20, columns: 4, width: 76, height: 46, gapX: 14, gapY: 16, head: 16, font: 15, small: 12 },
  { most: 64, columns: 8, width: 64, height: 44, gapX: 12, gapY: 14, head: 15, font: 14, small: 12 },
  { most: 256, columns: 16, width: 34, height: 28, gapX: 5, gapY: 7, head: 10, font: 11, small: 9 },
  { most: 1024, columns: 32, width: 17, height: 15, gapX: 2, gapY: 4, head: 0, font: 9, small: 0 },
];
const MOST_BANDS = 4;

export class PoolSvg {
  constructor(size, patterns, prefix, label, onSelect, { noun = "block", least = 1 } = {}) {
    this.shape = SHAPES.find(({ most }) => Math.max(size, least) <= most);
    this.size = size;
    this.patterns = patterns;
    this.prefix = prefix;
    this.noun = noun;
    this.keys = [];
    const { columns, width, height, gapX, gapY } = this.shape;
    this.columns = columns;
    this.rows = Math.ceil(size / this.columns);
    this.viewWidth = this.columns * (width + gapX) + gapX;
    this.viewHeight = this.rows * (height + gapY) + gapY;
    this.pictures = Array.from({ length: size }, (_, block) => this.#picture(block));
    this.cells = Array.from({ length: size }, (_, block) => this.#cell(block));
    this.root = svg("svg", {
      class: "mp-pool", role: "listbox", tabindex: 0, "aria-label": label,
      viewBox: `0 0 ${this.viewWidth} ${this.viewHeight}`,
      onclick: (event) => {
        const block = event.target.closest("[data-block]")?.dataset.block;
        if (block !== undefined) onSelect(Number(block));
      },
    }, svg("g", { "aria-hidden": "true" }, ...this.pictures), ...this.cells);
  }

  draw(cells) {
    let selected = null;
    for (let block = 0; block < this.size; block += 1) {
      const cell = cells.at(block);
      if (cell.isSelected) selected = block;
      const key = keyOf(cell);
      if (this.keys[block] === key) continue;
      this.keys[block] = key;
      this.#drawCell(cell);
    }
    if (selected === null) this.root.removeAttribute("aria-activedescendant");
    else this.root.setAttribute("aria-activedescendant", this.cells[selected].id);
  }

  // Where an arrow to a block ends, in pixels of the window: the middle of the cell's upper edge.
  anchor(block) {
    const box = this.root.getBoundingClientRect();
    const scale = box.width / this.viewWidth;
    const [x, y] = this.#corner(block);
    const { width, gapY } = this.shape;
    return {
      x: box.left + (x + width / 2) * scale,
      y: box.top + y * scale,
      gap: gapY * scale,
    };
  }

  #corner(block) {
    const { width, height, gapX, gapY } = this.shape;
    const column = block % this.columns;
    const row = Math.floor(block / this.columns);
    return [gapX + column * (width + gapX), gapY + row * (height + gapY)];
  }

  #picture(block) {
    const [x, y] = this.#corner(block);
    return svg("g", { transform: `translate(${x} ${y})` });
  }

  #cell(block) {
    const [x, y] = this.#corner(block);
    const { width, height } = this.shape;
    return svg("rect", {
      role: "option", id: `${this.prefix}-${block}`, "data-block": block, x, y, width, height, fill: "transparent",
    });
  }

  #drawCell(cell) {
    const { width, height, head, small } = this.shape;
    const picture = this.pictures[cell.block];
    picture.setAttribute("class", `mp-${cell.state}${cell.isFocused ? " mp-mine" : ""}`);
    this.cells[cell.block].setAttribute("aria-label", inWords(cell, this.noun));
    this.cells[cell.block].setAttribute("aria-selected", cell.isSelected);
    refill(
      picture,
      svg("rect", { class: "mp-base", width, height, rx: 2 }),
      ...this.#bands(cell),
      svg("rect", { class: "mp-frame", width, height, rx: 2 }),
      head && svg("text", { class: "mp-number", x: 3, y: head - 4, "font-size": small }, cell.block),
      head && cell.count > 1 && this.#pill(cell),
      this.#letters(cell),
      cell.sign && svg("rect", {
        class: "mp-outline", x: -2, y: -2, width: width + 4, height: height + 4, rx: 3,
      }),
      cell.sign && head && this.#badge(cell.sign),
      cell.isSelected && svg("rect", {
        class: "mp-selected", x: -5, y: -5, width: width + 10, height: height + 10, rx: 5,
      }),
    );
  }

  // One band for each owner, as long as the block is full.
  #bands({ owners, filled, size }) {
    const { width, height, head } = this.shape;
    const shown = owners.slice(0, MOST_BANDS);
    const [high, long] = [(height - head) / shown.length, (width * filled) / size];
    return shown.map((seq, index) => svg("rect", {
      x: 0, y: head + index * high, width: long, height: high, fill: this.patterns.fill(seq),
    }));
  }

  #letters({ owners, state }) {
    const { width, height, head, font } = this.shape;
    const names = owners.map(letters);
    const fits = head ? Math.floor(width / font) + 1 : 1;
    const text = state === "cached" ? "#" : names.length > fits ? `${names[0]}…` : names.join("");
    if (!text || (!head && text.length > 1)) {
      return names.length > 1 && svg("circle", { class: "mp-dot", cx: width / 2, cy: height / 2, r: 3.5 });
    }
    const middle = head + (height - head) / 2;
    const name = svg("text", {
      class: head ? "mp-letters" : "mp-letters mp-haloed", x: width / 2, y: middle + font * 0.36, "font-size": font,
    }, text);
    if (!head) return name; // a plate would hide most of the colour
    const plate = Math.min(text.length * font * 0.68 + 5, width);
    return svg("g", {},
      svg("rect", {
        class: "mp-plate", x: (width - plate) / 2, y: middle - font * 0.6, width: plate,
        height: font * 1.2, rx: 3,
      }),
      name);
  }

  #pill({ count }) {
    const { width, head, small } = this.shape;
    const text = `×${count}`;
    const long = text.length * small * 0.62 + 6;
    return svg("g", {},
      svg("rect", { class: "mp-pill", x: width - long, y: 0, width: long, height: head - 1, rx: 4 }),
      svg("text", {
        class: "mp-pill-text", x: width - long / 2, y: head - 4, "font-size": small,
      }, text));
  }

  #badge(sign) {
    const { width, height, small } = this.shape;
    const radius = small * 0.75;
    return svg("g", { transform: `translate(${width} ${height})` },
      svg("circle", { class: "mp-badge", r: radius }),
      svg("text", { class: "mp-badge-text", y: small * 0.36, "font-size": small }, sign));
  }
}
