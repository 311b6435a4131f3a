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

// The rows of a program are made once: only which of them is now changes.
export class Text {
  constructor(onStep) {
    this.onStep = onStep;
    this.body = el("tbody");
    this.root = el("section", { class: "mp-text", "aria-label": "The program as text", tabindex: 0 }, el("table", {},
      el("caption", {}, "What this program does"),
      el("thead", {}, el("tr", {}, ...["step", "line", "touches", "what happens"].map((h) => el("th", { scope: "col" }, h)))),
      this.body));
  }

  draw({ run, index, place, number, program, row }) {
    const shown = `${number} ${row}`;
    if (this.shown !== shown) this.#fill(run, index - place, program, row);
    this.shown = shown;
    this.now?.classList.remove("mk-now");
    this.now?.removeAttribute("aria-current");
    this.now = this.body.children[place];
    this.now.classList.add("mk-now");
    this.now.setAttribute("aria-current", "step");
  }

  #fill(run, first, { steps }, row) {
    refill(this.body, ...steps.map((step, place) => el("tr", {},
      el("th", { scope: "row" }, el("button", { class: "mp-block-button", onclick: () => this.onStep(first + place) }, place + 1)),
      el("td", {}, step.line === step.last_line ? step.line : `${step.line}–${step.last_line}`),
      el("td", {}, step.tensor && placeOf(step)),
      el("td", {}, inWords(run.at(first + place, row))))));
  }
}
