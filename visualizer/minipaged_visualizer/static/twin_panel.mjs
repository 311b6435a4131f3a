// One run of two: its numbers, who waits outside, its pool, and where the slots are.

import { el, refill } from "./dom.mjs";
import { chip } from "./marks.mjs";
import { WAITING } from "./run_model.mjs";
import { makePool } from "./slot_pool.mjs";
import { WasteBar, lineKey } from "./twin_charts.mjs";
import { slotsInWords } from "./twin_words.mjs";

const MOST_CHIPS = 10;

export class Panel {
  constructor(model, side) {
    const { num_blocks: blocks, block_size: slots } = model.timeline.header;
    this.pool = makePool(model, `${model.label}: pool of ${blocks} blocks of ${slots}`);
    this.bar = new WasteBar();
    this.queue = el("p", { class: "sb-queue" });
    this.counts = el("p", { class: "sb-who" });
    this.root = el("section", { class: `sb-panel sb-panel${side}`, "aria-label": model.label },
      el("header", { class: "sb-head" }, el("h3", {}, lineKey(side), ` ${model.label}`), this.counts),
      this.queue, this.pool.root, this.bar.root);
  }

  draw(moment) {
    this.pool.draw(moment, slotsInWords(moment));
    this.bar.draw(moment);
    refill(this.queue, ...this.#outside(moment));
    refill(this.counts, ...["running", "waiting", "done"].map((name) => el("span", { class: `sb-count sb-${name}`, "data-some": moment[name] > 0 },
      el("b", {}, moment[name].toLocaleString("en")), ` ${name}`)));
  }

  #outside({ state, waiting }) {
    if (!waiting) return ["nobody waits outside"];
    const seqs = [...state.sequences].filter(([, { status }]) => WAITING.includes(status)).map(([seq]) => seq);
    const left = seqs.length - MOST_CHIPS;
    return ["waiting outside: ", ...seqs.slice(0, MOST_CHIPS).map((seq) => chip(seq)), left > 0 && ` and ${left} more`];
  }
}
