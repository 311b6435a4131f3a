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
    this.base = el("canvas", { width: this.root.width, height: this.root.height }).getContext("2d");
    this.base.scale(scale, scale);
    this.codes = new Int32Array(size).fill(-9); // what is drawn of each block
  }

  draw(cells) {
    const style = getComputedStyle(this.root); // the style sheet lends these properties to us
    const [ink, accent] = [style.color, style.textDecorationColor];
    this.#drawBase(cells, {
      page: style.columnRuleColor, free: style.backgroundColor, cached: style.caretColor, ink,
    });
    this.context.clearRect(0, 0, this.columns * this.step, this.rows * this.step);
    this.context.drawImage(this.base.canvas, 0, 0, this.columns * this.step, this.rows * this.step);
    for (const [block, owners] of cells.owners) {
      if (owners.some(([seq]) => seq === cells.focus)) this.#light(block, cells.focus, ink);
    }
    for (const block of cells.signs.keys()) this.#outline(block, accent);
    if (cells.selected !== null) this.#outline(cells.selected, ink);
  }

  // What lies below the outlines is kept, and only what changed is drawn again.
  #drawBase(cells, looks) {
    const theme = Object.values(looks).join();
    if (this.theme !== theme) this.codes.fill(-9);
    this.theme = theme;
    for (let block = 0; block < this.size; block += 1) {
      const owners = cells.owners.get(block);
      const code = owners ? 2 * owners[0][0] + (owners.length > 1)
        : cells.counts[block] > 0 ? -3 : cells.hashes[block] ? -2 : -1;
      if (this.codes[block] === code) continue;
      this.codes[block] = code;
      this.#drawCell(block, owners, looks, code);
    }
  }

  #drawCell(block, owners, looks, code) {
    const [x, y] = this.#corner(block);
    const side = this.step > 2 ? this.step - 1 : this.step;
    const plain = { [-1]: looks.free, [-2]: looks.cached, [-3]: looks.ink }[code];
    this.base.fillStyle = looks.page;
    this.base.fillRect(x, y, side, side);
    this.base.globalAlpha = owners ? 0.55 : 1; // pale, so that the sequence in focus stands out
    this.base.fillStyle = owners ? HUES[hue(owners[0][0])] : plain;
    this.base.fillRect(x, y, side, side);
    if (owners) this.#detail(owners, x, y, side);
    this.base.globalAlpha = 1;
  }

  anchor(block) {
    const box = this.root.getBoundingClientRect();
    const scale = box.width / (this.columns * this.step);
    const [x, y] = this.#corner(block);
    return { x: box.left + (x + this.step / 2) * scale, y: box.top + y * scale, gap: 4 };
  }

  // The hatching of the first owner, and a dot where there are others.
  #detail(owners, x, y, side) {
    const context = this.base;
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

  // A block of the sequence in focus, in its full colour.
  #light(block, seq, ink) {
    const [x, y] = this.#corner(block);
    this.context.fillStyle = HUES[hue(seq)];
    this.context.fillRect(x, y, this.step - 1, this.step - 1);
    this.#outline(block, ink, 2);
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
