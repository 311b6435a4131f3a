// The rail of sequences, and the focused one: its logical blocks with their tokens, and its table.

import { Kept, el, plural, refill, token, update } from "./dom.mjs";
import { heatOf } from "./frame.mjs";
import { chip, letters } from "./marks.mjs";
import { outputOf } from "./reducer.mjs";

const RANK = ["running", "swapped", "preempted", "waiting", "finished"];
const MOST_SHOWN = 60;

// The numbers of the sequences, those that still change first.
export function byStatus(sequences) {
  const rank = (seq) => RANK.indexOf(sequences.get(seq).status);
  return [...sequences.keys()].sort((a, b) => rank(a) - rank(b) || a - b);
}

export class Rail {
  constructor(onFocus, prefix) {
    this.onFocus = onFocus;
    this.prefix = prefix;
    this.kept = new Kept();
    this.root = el("div", { class: "mp-rail", role: "listbox", "aria-label": "Sequences", tabindex: 0 });
  }

  draw(frame) {
    const { state, focus, options } = frame;
    const ranked = byStatus(state.sequences);
    const shown = ranked.slice(0, MOST_SHOWN);
    const touched = new Set(frame.marked.flatMap(({ seq, seqs, child }) => seqs ?? [seq, child]));
    this.order = shown;
    const entries = shown.map((seq) => this.#keptEntry(seq, state, seq === focus, touched.has(seq), options));
    this.kept.sweep();
    const left = ranked.length - shown.length;
    const words = !shown.length ? "no requests yet" : left ? `${left} more` : "";
    if (shown.includes(focus)) this.root.setAttribute("aria-activedescendant", this.#id(focus));
    else this.root.removeAttribute("aria-activedescendant");
    update(this.root, words ? [...entries, el("p", { class: "mp-quiet" }, words)] : entries);
  }

  #keptEntry(seq, state, isFocused, isTouched, options) {
    const { status } = state.sequences.get(seq);
    const { length } = state.tables.get(seq) ?? state.swapTables.get(seq) ?? [];
    const looks = [status, length, isFocused, isTouched, options.pinned === seq];
    return this.kept.get(seq, looks.join(), () => this.#entry(seq, ...looks));
  }

  #id(seq) {
    return `${this.prefix}-sequence-${seq}`;
  }

  #entry(seq, status, numBlocks, isFocused, isTouched, pinned) {
    return el("div", {
      class: `mp-sequence mp-is-${status}${isFocused ? " mp-focused" : ""}${isTouched ? " mp-touched" : ""}`,
      role: "option", id: this.#id(seq), "aria-selected": isFocused,
      onclick: () => this.onFocus(seq),
    },
    chip(seq),
    el("span", { class: "mp-status" }, status),
    el("span", { class: "mp-quiet" }, pinned ? "pinned" : numBlocks ? plural(numBlocks, "block") : ""));
  }
}

export class BlockTable {
  constructor(onSelect) {
    this.onSelect = onSelect;
    this.kept = new Kept();
    this.title = el("h3");
    this.rows = el("tbody");
    this.about = el("p", { class: "mp-next" });
    this.scroller = el("div", { class: "mp-scroll", tabindex: 0, role: "region", "aria-label": "Block table" },
      el("table", { class: "mp-table" },
        el("thead", {}, el("tr", {},
          el("th", { scope: "col", class: "mp-logical" }, "logical"),
          el("th", { scope: "col" }, "tokens"),
          el("th", { scope: "col", class: "mp-filled" }, "filled"),
          this.heatHead = el("th", { scope: "col", class: "mp-heat", hidden: true }, "attention"),
          el("th", { scope: "col", class: "mp-physical" }, "physical"))),
        this.rows));
    this.root = el("section", { class: "mp-blocks" }, this.title, this.scroller, this.about);
  }

  draw(frame) {
    const { state, focus } = frame;
    const sequence = state.sequences.get(focus);
    this.entries = []; // for arrows: [{cell, block}]
    if (!sequence) {
      refill(this.title, "Block table");
      refill(this.rows);
      refill(this.about);
      return;
    }
    this.isSwapped = state.swapTables.has(focus);
    const table = state.tables.get(focus) ?? state.swapTables.get(focus) ?? [];
    const numTokens = state.numTokens.get(focus) ?? 0;
    const numNew = frame.changes.newTokens.get(focus) ?? 0;
    this.heat = heatOf(state, focus);
    this.heatHead.hidden = !this.heat;
    refill(this.title, "Block table of ", chip(focus), ...this.#about(sequence, numTokens));
    update(this.rows, table.map((block, index) => this.#keptRow(frame, block, index, numTokens, numNew)));
    this.kept.sweep();
    refill(this.about, ...(table.length ? pending(sequence, table, numTokens) : [emptiness(sequence)]));
    this.#scrollToChange();
  }

  #about(sequence, numTokens) {
    const { status, numPromptTokens, parent, finishReason } = sequence;
    const fork = parent === null ? "" : `, fork of ${letters(parent)}`;
    const why = finishReason && ` (${finishReason})`;
    const words = `${status}${why}${fork}: ${plural(numTokens, "token")} in the cache, prompt ${numPromptTokens}`;
    return [el("small", {}, words)];
  }

  #keptRow(frame, block, index, numTokens, numNew) {
    const { state, changes } = frame;
    const size = state.blockSize;
    const filled = Math.min(Math.max(numTokens - index * size, 0), size);
    const old = Math.min(Math.max(numTokens - numNew - index * size, 0), filled);
    const contents = (this.isSwapped ? state.swapContents : state.contents)[block].slice(0, filled);
    const count = (this.isSwapped ? state.swapRefCounts : state.refCounts)[block];
    const sign = (this.isSwapped ? changes.swapBlocks : changes.blocks).get(block);
    const looks = { block, index, size, filled, old, count, sign, share: this.heat && (this.heat.permille[index] ?? 0) };
    const key = [...Object.values(looks), this.isSwapped, ...contents.map(({ text }) => text)].join("\n");
    const { row, physical } = this.kept.get(index, key, () => this.#row(looks, contents));
    this.entries.push({ cell: physical, block, isChanged: Boolean(sign) });
    return row;
  }

  #row({ block, index, size, filled, old, count, sign, share }, contents) {
    const physical = el("td", { class: "mp-physical" },
      el("button", { class: "mp-block-button", onclick: () => this.onSelect(block) },
        this.isSwapped ? `swap ${block}` : String(block)),
      count > 1 && el("span", { class: "mp-count" }, `×${count}`),
      sign && el("span", { class: "mp-sign" }, sign));
    const row = el("tr", { class: sign || filled > old ? "mp-changed" : "" },
      el("th", { scope: "row", class: "mp-logical" }, String(index)),
      el("td", {}, slots(contents, old, size)),
      el("td", { class: "mp-filled" }, `${filled} of ${size}`),
      share !== null && heatCell(share),
      physical);
    return { row, physical };
  }

  // Keep what changed in sight; without a change, the end.
  #scrollToChange() {
    const changed = this.rows.querySelector(".mp-changed") ?? this.rows.lastElementChild;
    if (!changed) return;
    const [top, bottom] = [changed.offsetTop, changed.offsetTop + changed.offsetHeight];
    const { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop + 24) this.scroller.scrollTop = top - 24;
    else if (bottom > scrollTop + clientHeight) this.scroller.scrollTop = bottom - clientHeight;
  }
}

// How much the newest token looked at a block.
function heatCell(permille) {
  const words = `${(permille / 10).toFixed(1)} %`;
  return el("td", { class: "mp-heat" },
    el("meter", { min: 0, max: 1000, value: permille, "aria-label": "attention" }), ` ${words}`);
}

// The slots of a block: tokens, those from `old` on outlined as new, then the empty ones.
export function slots(contents, old, size) {
  const empty = size - contents.length;
  const boxes = contents.map(({ text }, index) => token(text, index >= old ? "mp-tok mp-new" : "mp-tok"));
  const free = empty > 32
    ? [el("span", { class: "mp-quiet" }, plural(empty, "empty slot"))]
    : Array.from({ length: empty }, () => el("span", { class: "mp-tok mp-empty" }, "·"));
  return el("div", { class: "mp-slots" }, ...boxes, ...free);
}

function emptiness({ status }) {
  if (status === "finished") return "its blocks are given back";
  return status === "preempted" ? "its blocks were taken away" : "it has no blocks yet";
}

// The token that is chosen, but has no keys and values yet.
function pending(sequence, table, numTokens) {
  const output = outputOf(sequence);
  const known = sequence.numPromptTokens + output.length;
  if (!output.length || numTokens !== known - 1) return [];
  return ["next: ", token(output[output.length - 1].text, "mp-tok mp-pending"),
    " is chosen, but not in the cache yet"];
}
