// Online softmax: scores and weights of the tokens read now, and the state after each round.

import { el, listed, refill, svg } from "./dom.mjs";
import { MOST_WIDE } from "./microscope_run.mjs";
import { number } from "./microscope_words.mjs";

const HEIGHT = 96;
const WIDE = { step: 34, bar: 20, hasNumbers: true };
const NARROW = { step: 19, bar: 13, hasNumbers: false };
const MOST_BUTTONS = 4;
const LABEL_HEIGHT = 13;
const LABELS = 74; // pixels, for the levels

// The tokens of this round: their scores as bars from zero, their weights as bars from the ground.
export class Tile {
  constructor() {
    this.root = el("section", { class: "mk-tile" });
  }

  draw({ tile, step, row, rounds, program }) {
    const heading = el("h3", {}, tile ? `In block${tile.blocks.length > 1 ? "s" : ""} ${listed(tile.blocks, 12)}` : "In the block");
    const last = rounds[rounds.length - 1];
    if (step.kind === "join") {
      refill(this.root, el("h3", {}, "Parts of the context"), el("div", { class: "mk-figures" },
        figure("log-sum-exp of each part", scoreBars(step.tokens, last.scores, null, last.largest)),
        figure("weights: exp(log-sum-exp − the largest)", weightBars(step.tokens, last.weights))));
      return;
    }
    if (step.kind === "store" && last) {
      refill(this.root, el("h3", {}, "In the end"), shares(rounds, last));
      return;
    }
    if (step.kind !== "update") {
      refill(this.root, heading, el("p", { class: "mp-quiet" }, waiting(tile, program, rounds)));
      return;
    }
    const state = step.state[row];
    const before = state.before ?? null;
    const { tokens } = step;
    refill(this.root, heading, el("div", { class: "mk-figures" },
      figure("scores: q · k × scale", scoreBars(tokens, state.scores, before, state.largest)),
      figure("weights: exp(score − m)", weightBars(tokens, state.weights))));
  }
}

// What each token counts among all: exp(score − m) / l, with the last m and l.
function shares(rounds, { largest, total, isJoin }) {
  const tokens = rounds.flatMap((round) => round.tokens);
  const share = (score) => (score === null ? null : Math.exp(score - largest) / total);
  const values = rounds.flatMap(({ scores }) => scores.map(share));
  return figure(isJoin ? "each part’s share" : "each token’s share: exp(score − m) / l, together 1", weightBars(tokens, values, Math.max(...values)));
}

function waiting(tile, { steps }, rounds) {
  if (steps.some(({ kind }) => kind === "join")) return "This program reads no keys: it joins the parts of a context.";
  if (!tile) return rounds.length ? "The next keys are not loaded yet." : "Nothing is loaded yet.";
  return tile.hasValues ? "Keys and values are there; the scores come next." : "The keys are there; now the values.";
}

const figure = (title, picture) => el("figure", { class: "mk-figure" }, el("figcaption", {}, title), el("div", { class: "mk-scroll", tabindex: 0, role: "group", "aria-label": title }, picture));

function scoreBars(tokens, scores, before, largest) {
  const known = scores.filter((score) => score !== null);
  const top = Math.max(0.5, largest ?? 0, ...known);
  const bottom = Math.min(-0.5, before ?? 0, ...known);
  const y = (score) => ((top - score) * HEIGHT) / (top - bottom);
  const end = tokens.length * shapeOf(tokens).step;
  const level = (value, name, label, textY = y(value)) => value !== null && svg("g", { class: name },
    svg("line", { x1: 0, x2: end, y1: y(value), y2: y(value) }),
    svg("text", { x: end + 4, y: textY + 4 }, label));
  return chart("scores", tokens, end + LABELS, [
    svg("line", { class: "mk-zero", x1: 0, x2: end, y1: y(0), y2: y(0) }),
    ...bars(tokens, scores, (score) => (score === largest ? "mk-score mk-most" : "mk-score"), y),
    before !== largest && level(before, "mk-level mk-old", `old m ${number(before)}`, Math.max(y(before), y(largest) + LABEL_HEIGHT)),
    level(largest, "mk-level", `m ${number(largest)}`),
  ]);
}

function weightBars(tokens, weights, most = 1) {
  const y = (weight) => HEIGHT * (1 - weight / most);
  const width = tokens.length * shapeOf(tokens).step;
  return chart("weights", tokens, width, bars(tokens, weights, () => "mk-weight", y));
}

const shapeOf = (tokens) => (tokens.length > MOST_WIDE ? NARROW : WIDE);

// A bar from zero to each value; `y` gives the height at which a value stands.
function bars(tokens, values, nameOf, y) {
  const { step, bar, hasNumbers } = shapeOf(tokens);
  return values.map((value, index) => {
    const middle = index * step + step / 2;
    if (value === null) return svg("text", { class: "mk-value", x: middle, y: HEIGHT / 2 }, "×");
    const [top, height] = [Math.min(y(value), y(0)), Math.abs(y(value) - y(0))];
    return svg("g", { class: nameOf(value) },
      svg("title", {}, `${tokens[index]}: ${number(value)}`),
      svg("rect", { x: middle - bar / 2, y: top, width: bar, height: Math.max(1, height) }),
      hasNumbers && svg("text", { x: middle, y: value < 0 ? top + height + 11 : top - 3 }, number(value)));
  });
}

function chart(what, tokens, width, children) {
  const { step } = shapeOf(tokens);
  return svg("svg", {
    class: "mk-chart", viewBox: `0 -14 ${width} ${HEIGHT + 44}`, width, height: HEIGHT + 44, role: "img",
    "aria-label": `${what} of tokens ${listed(tokens, 64)}`,
  }, ...children, ...tokens.map((token, index) => svg("text", {
    class: "mk-token", x: index * step + step / 2, y: HEIGHT + 26,
  }, token)));
}

// The state m, l, and the rescale factor, round after round.
export class State {
  constructor(onRow) {
    this.onRow = onRow;
    this.root = el("section", { class: "mk-state", "aria-label": "Online softmax" });
  }

  draw({ program, row, rounds, step }) {
    const hasRounds = program.steps.some(({ kind }) => kind === "update");
    if (!hasRounds) {
      refill(this.root);
      return;
    }
    refill(this.root, el("h3", {}, "Online softmax"), rowsOf(program.rows, row, this.onRow),
      el("table", { class: "mk-rounds" },
        el("thead", {}, el("tr", {}, ...["block", "max", "m", "α", "l"].map((h) => el("th", { scope: "col" }, h)))),
        el("tbody", {},
          el("tr", { class: rounds.length ? "" : "mk-now" }, el("th", { scope: "row" }, "start"), el("td", {}, ""), el("td", {}, "−∞"), el("td", {}, ""), el("td", {}, "0")),
          ...rounds.map(roundRow))),
      el("p", { class: "mp-quiet" }, "m: largest score so far; l: sum of exp(score − m); α: exp(old m − m)"),
      step.tensor === "output" && rounds.length ? outputOf(rounds[rounds.length - 1]) : sumsOf(rounds[rounds.length - 1]));
  }
}

// Buttons to choose a row; where there are many, a list.
function rowsOf(names, row, onRow) {
  if (names.length > MOST_BUTTONS) {
    const options = names.map((name, index) => el("option", { value: index, selected: index === row }, name));
    const list = el("select", { class: "mp-speed", "aria-label": "Row", onchange: () => onRow(Number(list.value)) }, ...options);
    return el("div", { class: "mk-rows" }, list);
  }
  return el("div", { class: "mk-rows", role: "group", "aria-label": "Row" }, ...names.map((name, index) => el("button", {
    class: "mp-button mp-switch", "aria-pressed": index === row, onclick: () => onRow(index),
  }, name)));
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
