// What happened: one large line for the back row, and all lines of the step below, to go to.

import { el, plural, refill, safe } from "./dom.mjs";
import { linesOf } from "./frame.mjs";

export class Headline {
  constructor() {
    this.text = el("p", { class: "mp-caption", "aria-live": "polite" });
    this.place = el("p", { class: "mp-place" });
    this.root = el("div", { class: "mp-headline" }, this.place, this.text);
  }

  draw({ step, position, caption, options, timeline }) {
    const last = timeline.steps.length;
    const where = !step
      ? last ? `before the first of ${last} steps` : "before the first step"
      : `step ${step.step}${options.byEvent ? `, event ${position.event} of ${step.events.length}` : ""}`;
    const note = step && position.event >= step.events.length ? step.note : ""; // tells of the whole
    const work = step ? workOf(step, note) : "";
    refill(this.place, where, work && el("span", { class: "mp-quiet" }, ` · ${work}`));
    const words = wordsOf(step, note, caption, last);
    const sign = caption && !note ? caption.sign : "";
    const shown = `${sign} ${safe(words)}`;
    if (this.shown === shown) return; // said once, not at every redraw
    this.shown = shown;
    refill(this.text, sign && el("b", { class: "mp-caption-sign" }, sign), words);
  }
}

function wordsOf(step, note, caption, numSteps) {
  if (note) return asSentence(note);
  if (caption) return caption.text;
  if (step) return "nothing happened to memory";
  return numSteps ? "Press the space bar to play." : "Each step is shown as soon as it has run.";
}

// A capital to begin with, unless the first word is a name from code.
function asSentence(words) {
  return /^[a-z]+[ ,:]/.test(words) ? words[0].toUpperCase() + words.slice(1) : words;
}

function workOf({ prefill_tokens: prefill, decode_tokens: decode, note }, headline) {
  const parts = [prefill && plural(prefill, "prompt token"), decode && `${decode} decoded`, note !== headline && note];
  return parts.filter(Boolean).join(", ");
}

export class Happened {
  constructor(onGo) {
    this.onGo = onGo;
    this.root = el("section", { class: "mp-happened", "aria-label": "What happened in this step" });
  }

  draw({ step, position, options, lines, story, timeline }) {
    const all = linesOf(step, story);
    refill(
      this.root,
      el("h3", {}, "What happened"),
      el("ol", { class: "mp-lines" }, ...all.map((line) => this.#line(line, position, options))),
      !lines.length && el("p", { class: "mp-quiet" }, timeline.steps.length ? "nothing yet" : "no steps yet"),
    );
  }

  #line({ sign, text, each, first, count, routine }, position, options) {
    const isLater = first >= position.event;
    const isNow = options.byEvent && first < position.event && position.event <= first + count;
    const shown = isNow && each ? each[position.event - 1 - first] : text;
    const to = { number: position.number, event: isNow ? position.event : first + (each ? 1 : count) };
    const looks = [isLater && "mp-later", isNow && "mp-now", routine && "mp-routine"].filter(Boolean);
    return el("li", { class: looks.join(" ") },
      el("button", { class: "mp-line-button", "aria-current": isNow ? "step" : null, onclick: () => this.onGo(to) },
        el("b", {}, sign), ` ${shown}`));
  }
}
