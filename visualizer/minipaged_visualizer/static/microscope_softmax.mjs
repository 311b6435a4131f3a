// Online softmax: scores and weights of the tokens read now, and the state after each round.

import { el, listed, refill, svg } from "./dom.mjs";
import { number } from "./microscope_words.mjs";

const HEIGHT = 96;
const STEP = 34;
const BAR = 20;

// The tokens of this round: their scores as bars from zero, their weights as bars from the ground.
export class Tile {
  constructor() {
    this.root = el("section", { class: "mk-tile" });
  }

  draw({ tile, step, row, run, sequence }) {
    const heading = el("h3", {}, tile ? `In block${tile.blocks.length > 1 ? "s" : ""} ${listed(tile.blocks, 12)}` : "In the block");
    if (step.kind !== "update") {
      refill(this.root, heading, el("p", { class: "mp-quiet" }, waiting(tile, sequence)));
      return;
    }
    const state = step.state[row];
    const before = state.before ?? null;
    const tokens = step.tokens.map((token) => ({ token, place: placeOf(token, run, sequence) }));
    refill(this.root, heading, el("div", { class: "mk-figures" },
      figure("scores, q · k × scale", scoreBars(tokens, state.scores, before, state.largest)),
      figure("weights, exp(score − m)", weightBars(tokens, state.weights))));
  }
}

function waiting(tile, sequence) {
  if (!sequence) return "No scores: this kernel moves keys and values, and computes nothing.";
  if (!tile) return "Nothing is loaded yet.";
  return tile.hasValues ? "Keys and values are there; the scores come next." : "The keys are there; now the values.";
}

function placeOf(token, run, sequence) {
  return `${sequence?.blocks[Math.floor(token / run.size)]}:${token % run.size}`;
}

const figure = (title, picture) => el("figure", { class: "mk-figure" }, el("figcaption", {}, title), el("div", { class: "mk-scroll" }, picture));

function scoreBars(tokens, scores, before, largest) {
  const known = scores.filter((score) => score !== null);
  const top = Math.max(0.5, largest ?? 0, ...known);
  const bottom = Math.min(-0.5, before ?? 0, ...known);
  const scale = HEIGHT / (top - bottom);
  const y = (score) => (top - score) * scale;
  const level = (value, name, label) => value !== null && svg("g", { class: name },
    svg("line", { x1: 0, x2: tokens.length * STEP, y1: y(value), y2: y(value) }),
    svg("text", { x: tokens.length * STEP + 4, y: y(value) + 4 }, label));
  return chart(tokens, [
    svg("line", { class: "mk-zero", x1: 0, x2: tokens.length * STEP, y1: y(0), y2: y(0) }),
    ...bars(scores, (score) => [Math.min(y(score), y(0)), Math.abs(y(score) - y(0))], (score) => y(score) + (score < 0 ? 11 : -3), "mk-score", largest),
    before !== largest && level(before, "mk-level mk-old", `old m ${number(before)}`),
    level(largest, "mk-level", `m ${number(largest)}`),
  ], "scores");
}

function weightBars(tokens, weights) {
  return chart(tokens, bars(weights, (weight) => [HEIGHT * (1 - weight), HEIGHT * weight], (weight) => HEIGHT * (1 - weight) - 3, "mk-weight"), "weights");
}

function bars(values, box, textY, name, largest) {
  return values.map((value, index) => {
    const x = index * STEP + (STEP - BAR) / 2;
    const middle = index * STEP + STEP / 2;
    if (value === null) return svg("text", { class: "mk-value", x: middle, y: HEIGHT / 2 }, "hidden");
    const [y, height] = box(value);
    return svg("g", { class: value === largest ? `${name} mk-most` : name },
      svg("rect", { x, y, width: BAR, height: Math.max(1, height) }),
      svg("text", { class: "mk-value", x: middle, y: textY(value) }, number(value)));
  });
}

function chart(tokens, children, what) {
  const width = tokens.length * STEP + 70;
  return svg("svg", {
    class: "mk-chart", viewBox: `0 -14 ${width} ${HEIGHT + 44}`, width, height: HEIGHT + 44, role: "img",
    "aria-label": `${what} of tokens ${tokens.map(({ token }) => token).join(", ")}`,
  }, ...children,
  ...tokens.map(({ token }, index) => svg("text", { class: "mk-token", x: index * STEP + STEP / 2, y: HEIGHT + 26 }, token)));
}

// The state m, l, and the rescale factor, round after round.
export class State {
  constructor(onRow) {
    this.onRow = onRow;
    this.root = el("section", { class: "mk-state", "aria-label": "Online softmax" });
  }

  draw({ program, row, rounds, step }) {
    const rows = el("div", { class: "mk-rows", role: "group", "aria-label": "Row" }, ...program.rows.map((name, index) => el("button", {
      class: "mp-button mp-switch", "aria-pressed": index === row, onclick: () => this.onRow(index),
    }, name)));
    if (!program.rows.length) {
      refill(this.root);
      return;
    }
    refill(this.root, el("h3", {}, "Online softmax ", el("small", {}, "m: largest score, l: sum of exp(score − m)")), rows,
      el("table", { class: "mk-rounds" },
        el("thead", {}, el("tr", {}, ...["block", "its largest", "m", "old × α", "l"].map((h) => el("th", { scope: "col" }, h)))),
        el("tbody", {},
          el("tr", { class: rounds.length ? "" : "mk-now" }, el("th", { scope: "row" }, "start"), el("td", {}, ""), el("td", {}, "−∞"), el("td", {}, ""), el("td", {}, "0")),
          ...rounds.map(roundRow))),
      step.tensor === "output" && rounds.length ? outputOf(rounds[rounds.length - 1]) : sumsOf(rounds[rounds.length - 1]));
  }
}

function roundRow({ blocks, scores, largest, rescale, total, before, isNow }) {
  const known = scores.filter((score) => score !== null);
  const isNew = known.length && (before === null || largest > before);
  return el("tr", { class: isNow ? "mk-now" : "" },
    el("th", { scope: "row" }, listed(blocks, 4)),
    el("td", {}, known.length ? number(Math.max(...known)) : "none"),
    el("td", { class: isNew ? "mk-changed" : "" }, number(largest)),
    el("td", { class: rescale < 1 && before !== null ? "mk-changed" : "" }, before === null ? "–" : `× ${number(rescale)}`),
    el("td", {}, number(total)));
}

function sumsOf(round) {
  return el("p", { class: "mp-quiet mk-sums" }, round
    ? `weighted sum of the values: ${round.weighted.slice(0, 4).map(number).join(", ")}, …`
    : "weighted sum of the values: 0, 0, 0, 0, …");
}

function outputOf({ weighted, total }) {
  return el("p", { class: "mk-sums" }, `output = weighted sum / l = ${weighted.slice(0, 4).map((sum) => number(sum / Math.max(1, total))).join(", ")}, …`);
}
