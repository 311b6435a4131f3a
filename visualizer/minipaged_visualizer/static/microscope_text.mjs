// One program as a table of words: its steps up to now, and those to come.

import { el, refill } from "./dom.mjs";
import { inWords, placeOf } from "./microscope_words.mjs";

export const HELP_KEYS = [
  ["Space", "play, or pause"],
  ["→ ←", "one step forward, back (also n and p)"],
  ["Page Down, Page Up", "to the next program, back (also Shift with → and ←)"],
  [". ,", "to the next, previous update of the softmax"],
  ["Home End", "to the start, to the end"],
  ["+ -", "faster, slower"],
  ["r", "another row: each query head has a softmax of its own"],
  ["t", "the program as a text table"],
  ["a", "arrows on, off"],
  ["?", "this page; Esc closes it"],
];
export const HELP_SIGNS = [
  ["A", "a sequence; at a program: whose tokens it attends to"],
  ["m", "the largest score so far, so that no exp gets too large"],
  ["l", "the sum of exp(score − m) so far"],
  ["α", "exp(old m − m): what the old sums are multiplied by when m grows"],
  ["×", "a token that the query may not see: its future"],
  ["( )", "a program’s place in the grid"],
];

export class Text {
  constructor(onStep) {
    this.onStep = onStep;
    this.root = el("section", { class: "mp-text", "aria-label": "The program as text", tabindex: 0 });
  }

  draw({ run, index, place, program, row }) {
    const first = index - place;
    refill(this.root, el("table", {},
      el("caption", {}, "What this program does"),
      el("thead", {}, el("tr", {}, ...["step", "line", "touches", "what happens"].map((h) => el("th", { scope: "col" }, h)))),
      el("tbody", {}, ...program.steps.map((step, number) => el("tr", {
        class: number === place ? "mk-now" : "", "aria-current": number === place ? "step" : null,
      },
      el("th", { scope: "row" }, el("button", { class: "mp-block-button", onclick: () => this.onStep(first + number) }, number + 1)),
      el("td", {}, step.line === step.last_line ? step.line : `${step.line}–${step.last_line}`),
      el("td", {}, step.tensor && placeOf(step)),
      el("td", {}, inWords(run.at(first + number, row))))))));
  }
}
