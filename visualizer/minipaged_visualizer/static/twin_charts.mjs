// Waste drawn: a bar of one moment, and two lines over all steps with the scrubber.

import { el, refill, svg } from "./dom.mjs";
import { slotsInWords } from "./twin_words.mjs";

const WIDTH = 1000;
const HEIGHT = 100;
export const PARTS = [
  ["tokens", "tokens", "hold the KV of a token"],
  ["reserved", "reserved", "empty now, and will hold a token before they are given back"],
  ["internal", "internal", "empty, and never will hold one: held for nothing"],
  ["external", "external", "of no use to who waits: rounded up to a power of two, or free while somebody waits"],
  ["unused", "free", "free, and nobody waits"],
];

// Where all slots of a pool are.
export class WasteBar {
  constructor() {
    this.pieces = PARTS.map(([name]) => el("span", { class: `sb-part sb-${name}` }));
    this.bar = el("div", { class: "sb-bar", role: "img" }, ...this.pieces);
    this.counts = PARTS.map(() => el("b", {}));
    this.root = el("div", { class: "sb-where" }, this.bar, el("p", { class: "sb-counts" },
      ...PARTS.map(([name, word, meaning], index) => el("span", { class: `sb-key sb-key-${name}`, title: `${word}: ${meaning}` },
        el("i", { class: `sb-swatch sb-${name}` }), this.counts[index], ` ${word}`))));
  }

  draw(moment) {
    this.bar.setAttribute("aria-label", slotsInWords(moment));
    PARTS.forEach(([name], index) => {
      this.pieces[index].style.flexGrow = moment[name];
      this.pieces[index].hidden = moment[name] === 0;
      refill(this.counts[index], moment[name].toLocaleString("en"));
    });
  }
}

// The scrubber, and above it the share of each pool that is wasted, step by step.
export class TwinStrip {
  constructor(models, ticks, onTick) {
    this.ticks = ticks;
    this.tickOfNumber = new Map(ticks.map((number, index) => [number, index + 1]));
    this.onTick = onTick;
    this.range = el("input", {
      type: "range", class: "mp-range", min: 0, max: ticks.length + 1, value: 0, "aria-label": "Step",
      oninput: () => onTick(Number(this.range.value)),
    });
    this.cursor = svg("line", { class: "mp-cursor", y1: 0, y2: HEIGHT });
    const lines = models.map((model, side) => svg("path", { class: `sb-line sb-line${side}`, d: this.#path(model) }));
    this.chart = svg("svg", {
      class: "sb-chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `Wasted share of each pool over time. ${models.map((m) => `${m.label}: ${onAverage(m)} % on average`).join("; ")}`,
      onpointerdown: (event) => onTick(this.#tickAt(event)),
      onpointermove: (event) => event.buttons === 1 && onTick(this.#tickAt(event)),
    }, svg("line", { class: "sb-half", x1: 0, x2: WIDTH, y1: HEIGHT / 2, y2: HEIGHT / 2 }), ...lines, this.cursor);
    const marks = models.flatMap((model, side) => this.#marks(model, side));
    this.root = el("div", { class: "sb-strip" },
      el("p", { class: "sb-axis" }, el("span", {}, "wasted share of the pool, step by step:"),
        ...models.map((model, side) => el("span", {}, lineKey(side), ` ${model.label}, ${onAverage(model)} % on average`))),
      el("div", { class: "sb-plot" }, this.chart, ...marks, el("span", { class: "sb-top" }, "100 %"), el("span", { class: "sb-bottom" }, "0 %")),
      this.range);
  }

  draw(tick) {
    this.range.value = tick;
    const number = this.ticks[tick - 1];
    const words = tick === 0 ? "before the first step" : number === undefined ? "behind the last step" : `step ${number}`;
    this.range.setAttribute("aria-valuetext", words);
    const x = this.#x(tick);
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
  }

  #x(tick) {
    return (tick / (this.ticks.length + 1)) * WIDTH;
  }

  #tickAt({ clientX }) {
    const { left, width } = this.chart.getBoundingClientRect();
    return Math.round(((clientX - left) / width) * (this.ticks.length + 1));
  }

  // A step's share stands from half a step before it to half a step behind it.
  #path(model) {
    const half = this.#x(0.5);
    const points = model.rows.map(({ waste, pool }, index) => {
      const x = this.#x(this.#tickOf(model, index));
      const y = HEIGHT * (1 - waste / pool);
      return `${index ? "L" : "M"}${x - half} ${y}H${x + half}`;
    });
    return points.join("") || "M0 0";
  }

  // Where a run could not let somebody in for the first time, and where it ended.
  #marks(model, side) {
    const mark = (index, sign, words) => {
      const tick = this.#tickOf(model, index);
      const button = el("button", {
        class: `sb-mark sb-mark${side}`, title: `${model.label}: ${words} (step ${model.numbers[index]})`,
        "aria-label": `Go to step ${model.numbers[index]}: ${model.label}: ${words}`, onclick: () => this.onTick(tick),
      }, sign);
      button.style.left = `${(100 * tick) / (this.ticks.length + 1)}%`;
      return button;
    };
    const marks = model.firstWait >= 0 ? [mark(model.firstWait, "!", "somebody must wait")] : [];
    const { length } = model.rows;
    if (length && model.isDone) marks.push(mark(length - 1, "✓", "all done"));
    return marks;
  }

  #tickOf({ numbers }, index) {
    return this.tickOfNumber.get(numbers[index]);
  }
}

// The look of a run's line.
export function lineKey(side) {
  return svg("svg", { class: "sb-line-key", viewBox: "0 0 28 8", "aria-hidden": "true" },
    svg("path", { class: `sb-line sb-line${side}`, d: "M0 4H28" }));
}

function onAverage({ rows }) {
  const sum = rows.reduce((total, { waste, pool }) => total + waste / pool, 0);
  return rows.length ? Math.round((100 * sum) / rows.length) : 0;
}
