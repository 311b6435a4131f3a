// A pool slot by slot: which hold a token, which are kept for one, which are held for nothing.
//
// Blocks that stay as they are are not drawn again. More than 1024 are an overview on a canvas.

import { Cells } from "./cells.mjs";
import { el, listed, refill } from "./dom.mjs";
import { ownersOf } from "./frame.mjs";
import { hatching, hue, letters } from "./marks.mjs";
import { PoolCanvas } from "./pool_canvas.mjs";

const MOST_BLOCKS = 1024;
const MOST_NUMBERED = 64;
const MOST_NAMED = 256; // blocks that have a letter
const MOST_WORDS = 512; // slots that show their word
const MOST_LETTERS = 3;
export const KINDS = ["reserved", "internal", "rounding"];

export function makePool(model, label) {
  const { num_blocks: size } = model.timeline.header;
  return size > MOST_BLOCKS ? new Overview(size, label) : new SlotPool(model, label);
}

class SlotPool {
  constructor(model, label) {
    const { num_blocks: size, block_size: slots } = model.timeline.header;
    this.model = model;
    this.size = size;
    this.hasNames = size <= MOST_NAMED;
    this.hasWords = size * slots <= MOST_WORDS && slots <= 8;
    this.label = label;
    this.keys = [];
    this.blocks = Array.from({ length: size }, () => el("div", { class: "sb-block" }));
    const looks = this.hasWords ? "sb-pool sb-with-words" : this.hasNames ? "sb-pool sb-with-names" : "sb-pool";
    this.root = el("div", { class: looks, role: "img", "data-columns": this.#columns(slots) }, ...this.blocks);
  }

  draw(moment, words) {
    this.root.setAttribute("aria-label", `${this.label}: ${words}`);
    const owners = ownersOf(moment.state.tables);
    const small = tooSmall(moment);
    for (let block = 0; block < this.size; block += 1) {
      const held = (owners.get(block) ?? []).map(([seq]) => seq);
      const kinds = this.model.kindsOf(block, moment);
      const content = moment.state.contents[block];
      const key = `${held.join()}|${Object.values(kinds).join()}|${small.get(block) ?? ""}`;
      const isSame = this.keys[block]?.key === key && this.keys[block].content === content;
      if (isSame) continue;
      this.keys[block] = { key, content };
      this.#drawBlock(block, held, kinds, content, small.get(block));
    }
  }

  #columns(slots) {
    if (this.hasWords) return Math.max(Math.round((this.size * slots <= 128 ? 16 : 32) / slots), 1);
    return [[20, 4], [64, 8], [256, 16], [Infinity, 32]].find(([most]) => this.size <= most)[1];
  }

  #drawBlock(block, held, kinds, content, small) {
    const node = this.blocks[block];
    const looks = held.length
      ? `sb-used mp-hue${hue(held[0])} mp-hatch${hatching(held[0])}`
      : small === undefined ? "sb-free" : "sb-free sb-small";
    node.className = `sb-block ${looks}`;
    node.title = inWords(block, held, kinds);
    refill(node,
      this.hasNames && el("span", { class: "sb-name" }, ...this.#names(held), ...this.#number(block, small)),
      held.length
        ? el("span", { class: "sb-slots" }, ...this.#tokens(kinds.tokens, content),
          ...KINDS.map((kind) => this.#empty(kind, kinds[kind])))
        : small && this.hasNames && el("span", { class: "sb-hole" }, small));
  }

  #number(block, small) {
    return this.size <= MOST_NUMBERED && !small ? [el("i", {}, String(block))] : [];
  }

  #names(held) {
    const shown = held.slice(0, MOST_LETTERS).map((seq) => el("b", {}, letters(seq)));
    return held.length > MOST_LETTERS ? [...shown, "…"] : shown;
  }

  #tokens(count, content) {
    if (!this.hasWords) return [count > 0 && run("sb-tokens", count)];
    return content.slice(0, count).map(({ text }) => el("span", { class: "sb-token" },
      el("bdi", {}, text.trim() || (text ? "␣" : "∅"))));
  }

  // Slots that belong together are one piece, or one by one where tokens are.
  #empty(kind, count) {
    if (!count) return null;
    return this.hasWords ? Array.from({ length: count }, () => run(`sb-${kind}`, 1)) : run(`sb-${kind}`, count);
  }
}

class Overview {
  constructor(size, label) {
    this.label = label;
    this.canvas = new PoolCanvas(size, label, () => {});
    this.root = this.canvas.root;
    this.root.tabIndex = -1;
  }

  draw(moment, words) {
    const { state } = moment;
    this.root.setAttribute("aria-label", `${this.label}: ${words}`);
    const changes = { blocks: new Map(), swapBlocks: new Map() };
    this.canvas.draw(new Cells({
      state, changes, owners: ownersOf(state.tables), swapOwners: new Map(), focus: null, block: null,
    }));
  }
}

function inWords(block, held, { tokens, reserved, internal, rounding }) {
  if (!held.length) return `block ${block}: free`;
  const parts = [[tokens, "with tokens"], [reserved, "reserved"], [internal, "internal waste"], [rounding, "external waste"]];
  const told = parts.filter(([count]) => count).map(([count, words]) => `${count} ${words}`);
  return `block ${block}, held by ${listed(held.map(letters))}: ${told.join(", ")}`;
}

function run(name, count) {
  const piece = el("span", { class: name });
  if (count !== 1) piece.style.flexGrow = count;
  return piece;
}

// The blocks of holes that who waits can't use; the first of each says how large the hole is.
function tooSmall({ pieces, wanted, state }) {
  const small = new Map();
  if (wanted === null || pieces.some(({ size }) => size >= wanted)) return small;
  const holes = joined(pieces);
  for (const { first, size } of holes) {
    for (let block = first; block < first + size; block += 1) small.set(block, "");
    small.set(first, `${size * state.blockSize} free: too small`);
  }
  return small;
}

function joined(pieces) {
  const holes = [];
  for (const { first, size } of pieces) {
    const last = holes[holes.length - 1];
    if (last && last.first + last.size === first) last.size += size;
    else holes.push({ first, size });
  }
  return holes;
}
