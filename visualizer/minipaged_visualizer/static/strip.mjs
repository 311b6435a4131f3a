// The scrubber, and above all steps a chart of used, shared, cached and wasted memory.

import { el, plural, refill, svg } from "./dom.mjs";

const SAMPLES = 500;
const HEIGHT = 60;
const LAYERS = [
  ["shared", ({ shared }) => shared],
  ["own", ({ used, shared }) => used - shared],
  ["cached", ({ cached }) => cached],
];
const LAYER_WORDS = { shared: "shared", own: "used by one", cached: "cached" };

export class Strip {
  constructor(onStep) {
    this.range = el("input", {
      type: "range", class: "mp-range", min: 0, value: 0, "aria-label": "Step",
      oninput: () => onStep(Number(this.range.value) - 1),
    });
    this.paths = LAYERS.map(([name]) => svg("path", { class: `mp-layer mp-layer-${name}` }));
    this.waste = svg("path", { class: "mp-layer-waste" });
    this.cursor = svg("line", { class: "mp-cursor", y1: 0, y2: HEIGHT });
    this.chart = svg("svg", {
      class: "mp-chart", viewBox: `0 0 ${SAMPLES} ${HEIGHT}`, preserveAspectRatio: "none",
      role: "img", "aria-label": "Memory over time",
      onpointerdown: (event) => onStep(this.#stepAt(event)),
      onpointermove: (event) => event.buttons === 1 && onStep(this.#stepAt(event)),
    }, ...this.paths, this.waste, this.cursor);
    this.legend = el("p", { class: "mp-legend" });
    this.root = el("div", { class: "mp-strip" }, this.range, this.chart, this.legend);
    this.drawn = 0;
  }

  draw({ timeline, state, position, step }) {
    const { length } = timeline.steps;
    if (this.drawn !== length) this.#drawLayers(timeline, length);
    this.range.max = length;
    this.range.value = position.number + 1;
    this.range.setAttribute("aria-valuetext", step ? `step ${step.step}` : "before the first step");
    const x = length ? ((position.number + 1) / length) * SAMPLES : 0;
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    refill(this.legend, this.#counts(state));
  }

  #stepAt({ clientX }) {
    const { left, width } = this.chart.getBoundingClientRect();
    return Math.ceil(((clientX - left) / width) * this.drawn) - 1;
  }

  #counts(state) {
    const total = state.refCounts.length;
    const { numUsed, numShared, numCached, numEmptySlots, blockSize } = state;
    const share = numUsed ? Math.round((100 * numEmptySlots) / (numUsed * blockSize)) : 0;
    const item = (name, text) => el("span", { class: "mp-key" }, el("i", { class: `mp-swatch mp-swatch-${name}` }), text);
    return [
      item("shared", `${LAYER_WORDS.shared} ${numShared}`),
      item("own", `${LAYER_WORDS.own} ${numUsed - numShared}`),
      item("cached", `${LAYER_WORDS.cached} ${numCached}`),
      item("free", `free ${total - numUsed - numCached}`),
      item("waste", `wasted ${plural(numEmptySlots, "slot")} (${share} %)`),
      el("span", { class: "mp-quiet" }, `of ${plural(total, "block")}`),
    ];
  }

  // Stack the layers as steps; where there are more steps than pixels, the fullest one is drawn.
  #drawLayers({ counts, header }, length) {
    this.drawn = length;
    const total = header.num_blocks;
    const groups = sampled(counts, length);
    const width = SAMPLES / groups.length;
    const height = (blocks) => HEIGHT * (1 - blocks / total);
    let floor = groups.map(() => 0);
    LAYERS.forEach(([, size], layer) => {
      const top = floor.map((below, index) => below + size(groups[index]));
      const there = top.map((blocks, i) => `L${i * width} ${height(blocks)}H${(i + 1) * width}`).join("");
      const back = floor.map((blocks, i) => `L${(i + 1) * width} ${height(blocks)}H${i * width}`).reverse().join("");
      this.paths[layer].setAttribute("d", `M0 ${HEIGHT}${there}${back}Z`);
      floor = top;
    });
    const line = groups.map(({ empty }, i) => {
      const y = height(empty / header.block_size);
      return `${i ? "L" : "M"}${i * width} ${y}H${(i + 1) * width}`;
    });
    this.waste.setAttribute("d", line.join("") || "M0 0");
  }
}

function sampled(counts, length) {
  if (length <= SAMPLES) return counts;
  const size = length / SAMPLES;
  return Array.from({ length: SAMPLES }, (_, index) => {
    const group = counts.slice(Math.floor(index * size), Math.floor((index + 1) * size));
    return group.reduce((fullest, each) => (each.used > fullest.used ? each : fullest));
  });
}
