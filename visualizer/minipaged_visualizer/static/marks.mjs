// How a sequence is told from others: letter, hue and hatching, the same as in the terminal.
//
// The hues are those of Okabe and Ito. After seven sequences they begin again with another hatching,
// and a letter stands on a plate of its own, so that it can be read on any of them.

import { el, svg } from "./dom.mjs";

export const HUES = ["#e69f00", "#56b4e9", "#009e73", "#f0e442", "#cc79a7", "#0072b2", "#d55e00"];
const HATCHINGS = ["", "M-2 10L10 -2M-2 18L18 -2", "M-2 6L10 18M-2 -2L18 18", "M0 0L16 16M16 0L0 16"];
const LETTERS = 26;
const MOST_LETTERS = 26 + 26 ** 2 + 26 ** 3;

// Give the name of a sequence for people: A, B, ..., Z, AA, ...
export function letters(seq) {
  if (seq < 0 || seq >= MOST_LETTERS) return `#${seq}`;
  let [name, rest] = ["", seq + 1];
  while (rest) {
    rest -= 1;
    name = String.fromCharCode(65 + (rest % LETTERS)) + name;
    rest = Math.floor(rest / LETTERS);
  }
  return name;
}

const modulo = (value, size) => ((value % size) + size) % size;
export const hue = (seq) => modulo(seq, HUES.length);
export const hatching = (seq) => modulo(Math.floor(seq / HUES.length), HATCHINGS.length);

// A letter on its sequence's hue and hatching.
export function chip(seq, extra = "") {
  const classes = `mp-chip mp-hue${hue(seq)} mp-hatch${hatching(seq)} ${extra}`;
  return el("span", { class: classes }, el("b", {}, letters(seq)));
}

// Patterns for SVG, each made when it is first asked for.
export class Patterns {
  constructor(prefix) {
    this.prefix = prefix;
    this.defs = svg("defs");
    this.known = new Set();
  }

  // Give the `fill` of what a sequence holds.
  fill(seq) {
    const id = `${this.prefix}-${hue(seq)}-${hatching(seq)}`;
    if (!this.known.has(id)) {
      this.known.add(id);
      const size = { width: 16, height: 16, patternUnits: "userSpaceOnUse" };
      const lines = { d: HATCHINGS[hatching(seq)], stroke: "#000", "stroke-width": 2.2 };
      this.defs.append(
        svg("pattern", { id, ...size },
          svg("rect", { width: 16, height: 16, fill: HUES[hue(seq)] }),
          svg("path", { ...lines, "stroke-opacity": 0.55 })),
      );
    }
    return `url(#${id})`;
  }
}

const ICONS = {
  first: "M4 3h2v10H4zM13 3v10L7 8z",
  back: "M11 3v10L4 8z",
  backEvent: "M11 3v10L6 8zM4 7h1.5v2H4z",
  play: "M4 3l9 5-9 5z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  forwardEvent: "M5 3v10l5-5zM10.500 7H12v2h-1.500z",
  forward: "M5 3v10l7-5z",
  last: "M10 3h2v10h-2zM3 3v10l6-5z",
};

// Icons are drawn, as many fonts lack them.
export function icon(name) {
  const box = { viewBox: "0 0 16 16", class: "mp-icon", "aria-hidden": "true" };
  return svg("svg", box, svg("path", { d: ICONS[name] }));
}
