// The kernel microscope: a recorded run, stepped through program by program.

import { Arrows } from "./arrows.mjs";
import { Controls, actionOf, speedMoves } from "./controls.mjs";
import { el, keepingFocus, refill } from "./dom.mjs";
import { Help } from "./help.mjs";
import { startPage, widgetOf } from "./host.mjs";
import { Pool, Programs, Source, Table, nameOf } from "./microscope_parts.mjs";
import { Run } from "./microscope_run.mjs";
import { State, Tile } from "./microscope_softmax.mjs";
import { HELP_KEYS, HELP_SIGNS, Text } from "./microscope_text.mjs";
import { inWords, placeOf } from "./microscope_words.mjs";

// As in the player, small moves are "events", and large ones "steps": here of a program, and programs.
const KEYS = {
  " ": "toggle", ArrowRight: "forwardEvent", ArrowLeft: "backEvent", n: "forwardEvent", p: "backEvent",
  PageDown: "forward", PageUp: "back", ".": "nextUpdate", ",": "previousUpdate", Home: "first",
  End: "last", "+": "faster", "=": "faster", "-": "slower", r: "nextRow", a: "arrows", t: "text",
  "?": "help", Escape: "close",
};
const SHIFTED = { ArrowRight: "forward", ArrowLeft: "back" };
const LABELS = {
  back: "One program back (Page Up, or Shift ←)", backEvent: "One step back (← or p)",
  forwardEvent: "One step forward (→ or n)", forward: "To the next program (Page Down, or Shift →)",
  last: "To the end (End)",
};
const LEFT_OUT = ["byEvent", "backRow", "prefixes"];
const TOGGLES = ["arrows", "text", "help"];
const SLOWNESS = 1500; // ms that a step is shown at speed 1

class Microscope {
  constructor(payload) {
    this.run = new Run(payload);
    this.index = 0;
    this.row = 0;
    this.options = { playing: false, speed: 1, arrows: true, text: false, help: false };
    this.#build(payload);
    this.draw(); // at once: what can't be drawn is told in place of it
  }

  act(action, value) {
    const { run, index, options } = this;
    const moves = {
      forwardEvent: () => this.goTo(index + 1),
      backEvent: () => this.goTo(index - 1),
      first: () => this.goTo(0),
      last: () => this.goTo(run.length - 1),
      forward: () => this.goTo(run.programAfter(index, +1)),
      back: () => this.goTo(run.programAfter(index, -1)),
      nextUpdate: () => this.goTo(run.updateAfter(index, +1)),
      previousUpdate: () => this.goTo(run.updateAfter(index, -1)),
      toggle: () => (options.playing ? this.pause() : this.play()),
      ...speedMoves(options, value),
      nextRow: () => this.#nextRow(),
      close: () => { options.help = false; },
    };
    if (TOGGLES.includes(action)) options[action] = !options[action];
    else moves[action]();
    this.redraw();
  }

  goTo(index) {
    this.pause();
    this.#move(index);
  }

  play() {
    if (this.index === this.run.length - 1) this.#move(0);
    this.options.playing = true;
    this.#wait();
  }

  pause() {
    this.options.playing = false;
    clearTimeout(this.timer);
  }

  #move(index) {
    this.index = Math.max(0, Math.min(this.run.length - 1, index));
    this.redraw();
  }

  // Show each step for a while, the first one, too.
  #wait() {
    this.timer = setTimeout(() => {
      this.#move(this.index + 1);
      if (this.index === this.run.length - 1) this.options.playing = false;
      else this.#wait();
    }, SLOWNESS / this.options.speed);
  }

  #nextRow() {
    const { program } = this.run.moments[this.index];
    const { rows } = this.run.programs[program];
    this.row = rows.length ? (Math.min(this.row, rows.length - 1) + 1) % rows.length : 0;
  }

  // --- drawing ----------------------------------------------------------------------------------

  // Draw soon, once for all changes until then.
  redraw() {
    this.redrawing ??= requestAnimationFrame(() => {
      this.redrawing = null;
      keepingFocus(this.root, () => this.draw());
    });
  }

  draw() {
    const moment = this.run.at(this.index, this.row);
    const { options } = this;
    this.text.root.hidden = !options.text;
    this.main.hidden = options.text;
    for (const part of options.text ? [this.text] : this.parts) part.draw(moment);
    this.help.draw({ options });
    this.controls.draw({ options });
    if (!options.text) this.arrows.draw(this.table, this.pool, options.arrows && this.table.entries.length > 0);
    this.range.value = this.index;
    this.range.setAttribute("aria-valuetext", inWords(moment));
    refill(this.place, `${nameOf(this.run, moment.program)} · step ${moment.place + 1} of ${moment.program.steps.length}`
      + `${moment.step.tensor && ` · ${placeOf(moment.step)}`}`);
    const words = inWords(moment);
    if (this.said !== words) refill(this.caption, words); // said once, not at every redraw
    this.said = words;
  }

  destroy() {
    this.pause();
    this.observer.disconnect();
    cancelAnimationFrame(this.redrawing);
    this.root.remove();
  }

  #build({ title }) {
    const { run } = this;
    this.table = new Table();
    this.pool = new Pool(run);
    this.controls = new Controls((action, value) => this.act(action, value), LEFT_OUT, LABELS);
    this.place = el("p", { class: "mp-place" });
    this.caption = el("p", { class: "mp-caption", "aria-live": "polite" });
    this.range = el("input", {
      type: "range", class: "mp-range", min: 0, max: run.length - 1, value: 0, "aria-label": "Step",
      oninput: () => this.goTo(Number(this.range.value)),
    });
    const programs = new Programs(run, (program) => this.goTo(run.firsts[program]));
    const source = new Source();
    const tile = new Tile();
    const state = new State((row) => { this.row = row; this.redraw(); });
    this.parts = [programs, source, this.table, this.pool, tile, state];
    this.text = new Text((index) => this.goTo(index));
    this.help = new Help(() => this.options.help && this.act("help"), HELP_KEYS, HELP_SIGNS);
    this.stage = el("div", { class: run.hasTables ? "mk-stage" : "mk-stage mk-no-table" }, this.table.root, this.pool.root);
    this.arrows = new Arrows(this.stage);
    this.stage.append(this.arrows.root);
    this.main = el("div", { class: "mk-main" },
      el("div", { class: "mk-left" }, programs.root, source.root),
      el("div", { class: "mk-right" }, this.stage, run.hasTables && el("div", { class: run.isWide ? "mk-softmax mk-many" : "mk-softmax" }, tile.root, state.root)));
    this.root = el("section", {
      class: "minipaged", tabindex: 0, "aria-label": "Kernel microscope", "data-lm-suppress-shortcuts": "true",
      onkeydown: (event) => this.#onKey(event),
    }, el("div", { class: "mp-frame-box" },
      el("header", { class: "mp-title" }, el("h2", {}, title || "A kernel under the microscope")),
      el("div", { class: "mp-headline" }, this.place, this.caption),
      this.main,
      el("div", { class: "mk-as-text" }, this.text.root),
      el("div", { class: "mp-bottom mk-bottom" }, this.controls.transport,
        el("div", { class: "mp-strip" }, this.range), this.controls.options)),
    this.help.root);
    this.observer = new ResizeObserver(() => this.redraw());
    this.observer.observe(this.root);
  }

  #onKey(event) {
    const action = actionOf(event, KEYS, SHIFTED);
    event.stopPropagation(); // a notebook would take keys for its own
    if (action === undefined || scrolls(event)) return;
    event.preventDefault();
    this.act(action);
  }
}

// Whether a key moves what is too wide for its place, e.g. the source.
function scrolls({ key, shiftKey, target }) {
  const isSideways = !shiftKey && (key === "ArrowLeft" || key === "ArrowRight");
  return isSideways && target.matches(".mk-source, .mk-scroll") && target.scrollWidth > target.clientWidth;
}

// --- a page, and a widget -------------------------------------------------------------------------

const WHAT = "This recording";

export function start(document) {
  startPage(document, {
    what: WHAT,
    heading: "minipaged: a kernel under the microscope",
    make: (payload) => new Microscope(payload),
    go: goToMoment,
  });
}

export function createWidget() {
  return widgetOf(WHAT, (payload) => new Microscope(payload));
}

// `#12` names the moment after twelve others.
function goToMoment(microscope, hash) {
  const found = /^#(\d+)/.exec(hash);
  microscope.goTo(found ? Number(found[1]) : 0);
}
