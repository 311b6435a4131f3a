// An overview of more than 1024 blocks on a canvas: colour, what changed, what is selected.

import { el } from "./dom.mjs";
import { HUES, hatching, hue } from "./marks.mjs";

const WIDTH = 640;

export class PoolCanvas {
  constructor(size, label, onSelect) {
    this.size = size;
    this.columns = 2 ** Math.ceil(Math.log2(Math.sqrt(size)));
    this.step = Math.max(Math.floor(WIDTH / this.columns), 1);
    this.rows = Math.ceil(size / this.columns);
    const scale = Math.min(globalThis.devicePixelRatio || 1, 2);
    this.root = el("canvas", {
      class: "mp-pool", role: "img", tabindex: 0, "aria-label": label,
      width: this.columns * this.step * scale, height: this.rows * this.step * scale,
      onclick: (event) => {
        const block = this.#blockAt(event);
        if (block !== null) onSelect(block);
      },
    });
    this.context = this.root.getContext("2d");
    this.context.scale(scale, scale);
  }

  draw(cells) {
    const { context, step } = this;
    const style = getComputedStyle(this.root); // the style sheet lends these properties to us
    const looks = { free: style.backgroundColor, cached: style.caretColor };
    const [ink, accent] = [style.color, style.textDecorationColor];
    context.clearRect(0, 0, this.columns * step, this.rows * step);
    const [mine, late] = [[], []];
    const side = step > 2 ? step - 1 : step;
    for (let block = 0; block < this.size; block += 1) {
      const [x, y] = this.#corner(block);
      const owners = cells.owners.get(block);
      const isUsed = cells.counts[block] > 0;
      const isCached = !isUsed && cells.hashes[block];
      context.fillStyle = owners
        ? HUES[hue(owners[0][0])]
        : isUsed ? ink : looks[isCached ? "cached" : "free"];
      context.fillRect(x, y, side, side);
      if (owners) this.#detail(owners, x, y, side);
      if (owners?.some(([seq]) => seq === cells.focus)) mine.push(block);
      if (cells.signs.has(block) || block === cells.selected) late.push(block);
    }
    for (const block of mine) this.#outline(block, ink, 1.5);
    for (const block of late) this.#outline(block, block === cells.selected ? ink : accent);
  }

  anchor(block) {
    const box = this.root.getBoundingClientRect();
    const scale = box.width / (this.columns * this.step);
    const [x, y] = this.#corner(block);
    return { x: box.left + (x + this.step / 2) * scale, y: box.top + y * scale, gap: 4 };
  }

  // The hatching of the first owner, and a dot where there are others.
  #detail(owners, x, y, side) {
    const { context } = this;
    const lines = side >= 4 ? hatching(owners[0][0]) : 0;
    context.fillStyle = "#0009";
    if (lines & 1) for (let i = 0; i < side; i += 1) context.fillRect(x + i, y + side - 1 - i, 1, 1);
    if (lines & 2) for (let i = 0; i < side; i += 1) context.fillRect(x + i, y + i, 1, 1);
    if (owners.length > 1) {
      const dot = Math.max(side / 2, 1);
      context.fillStyle = "#000";
      context.fillRect(x + (side - dot) / 2, y + (side - dot) / 2, dot, dot);
    }
  }

  #outline(block, colour, width = 2.5) {
    const [x, y] = this.#corner(block);
    this.context.strokeStyle = colour;
    this.context.lineWidth = width;
    this.context.strokeRect(x - 1, y - 1, this.step + 1, this.step + 1);
  }

  #corner(block) {
    return [(block % this.columns) * this.step, Math.floor(block / this.columns) * this.step];
  }

  #blockAt({ clientX, clientY }) {
    const box = this.root.getBoundingClientRect();
    const scale = (this.columns * this.step) / box.width;
    const column = Math.floor(((clientX - box.left) * scale) / this.step);
    const block = Math.floor(((clientY - box.top) * scale) / this.step) * this.columns + column;
    return block >= 0 && block < this.size ? block : null;
  }
}
