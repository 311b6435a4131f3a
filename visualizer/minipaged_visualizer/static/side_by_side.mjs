// Two runs in two pools, moved by one scrubber: each tick is a step of either trace.
//
// Tick 0 is before the first step, the last one behind all of them. A run that has no step of a
// number stays where it is; one that is over shows what is left at its end.

import { Controls, actionOf, speedMoves } from "./controls.mjs";
import { el, refill, safe } from "./dom.mjs";
import { Help } from "./help.mjs";
import { startPage, widgetOf } from "./host.mjs";
import { RunModel } from "./run_model.mjs";
import { PARTS, TwinStrip } from "./twin_charts.mjs";
import { Panel } from "./twin_panel.mjs";
import { textTable } from "./twin_table.mjs";
import { sentence } from "./twin_words.mjs";

const SIDES = ["left", "right"];
const LEFT_OUT = ["backEvent", "forwardEvent", "byEvent", "prefixes"];
const SAME = { forwardEvent: "forward", backEvent: "back" };
const KEYS = [
  ["Space", "play, or pause"],
  ["→ ←", "one step forward, back, in both runs"],
  ["Home End", "to the start, to the end"],
  ["+ -", "faster, slower"],
  ["b", "back row: large type, few things at a time"],
  ["t", "all as a text table"],
  ["?", "this page; Esc closes it"],
];
const SIGNS = [
  ["A 7", "block 7 of the pool, held by A; each slot that holds a token shows its word"],
  ...PARTS.map(([, word, meaning]) => [word, meaning]),
  ["too small", "a hole in the pool that is too small for the slab of the next who waits"],
  ["! ✓", "above the scrubber: somebody must wait for the first time; all are done"],
];

class SideBySide {
  // `payload` is {title, left: {header, steps}, right: {header, steps}}. Throws a TraceError.
  constructor(payload) {
    this.models = SIDES.map((side) => read(payload, side));
    label(this.models);
    this.ticks = [...new Set(this.models.flatMap(({ numbers }) => numbers))].sort((a, b) => a - b);
    this.options = { playing: false, speed: 2, backRow: false, text: false, help: false };
    this.tick = Math.min(1, this.ticks.length);
    this.#build(payload.title);
    this.redraw();
  }

  // --- moving -----------------------------------------------------------------------------------

  goTo(tick) {
    this.pause();
    this.#move(tick);
  }

  act(name, value) {
    const action = SAME[name] ?? name;
    const { options } = this;
    const moves = {
      forward: () => this.goTo(this.tick + 1),
      back: () => this.goTo(this.tick - 1),
      first: () => this.goTo(0),
      last: () => this.goTo(this.ticks.length + 1),
      toggle: () => (options.playing ? this.pause() : this.play()),
      ...speedMoves(options, value),
      close: () => { options.help = false; },
    };
    if (["backRow", "text", "help"].includes(action)) options[action] = !options[action];
    else moves[action]?.();
    this.redraw();
  }

  play() {
    if (this.tick > this.ticks.length) this.tick = 0;
    this.options.playing = true;
    this.#play();
  }

  pause() {
    this.options.playing = false;
    clearTimeout(this.timer);
  }

  #move(tick) {
    this.tick = Math.min(Math.max(tick, 0), this.ticks.length + 1);
    this.redraw();
  }

  #play() {
    if (!this.options.playing) return;
    this.#move(this.tick + 1);
    if (this.tick > this.ticks.length) this.pause();
    else this.timer = setTimeout(() => this.#play(), 1000 / this.options.speed);
  }

  // The step that a tick stands for: -1 before all, Infinity behind all.
  get number() {
    return this.tick === 0 ? -1 : this.ticks[this.tick - 1] ?? Infinity;
  }

  // --- drawing ----------------------------------------------------------------------------------

  redraw() {
    this.redrawing ??= requestAnimationFrame(() => {
      this.redrawing = null;
      this.draw();
    });
  }

  draw() {
    const { number, options, root } = this;
    const moments = this.models.map((model) => model.at(number));
    root.classList.toggle("mp-back-row", options.backRow);
    this.text.hidden = !options.text;
    this.stage.hidden = options.text;
    this.#say(number, moments);
    if (options.text) refill(this.text, textTable(this.models, moments));
    else this.panels.forEach((panel, side) => panel.draw(moments[side]));
    this.strip.draw(this.tick);
    this.controls.draw(this);
    this.help.draw(this);
  }

  #say(number, moments) {
    const { ticks } = this;
    const last = ticks[ticks.length - 1];
    const place = number < 0 ? "before the first step" : number === Infinity ? behind(last) : `step ${number} of ${last}`;
    const told = moments.map((moment, side) => sentence(this.models[side], moment));
    const first = moments.map(({ index, isOver }, side) => !isOver && index >= 0 && index === this.models[side].firstWait
      && ` · ${this.models[side].label}: for the first time somebody must wait`);
    refill(this.place, place, ...first);
    if (this.told === told.join()) return; // said once, not at every redraw
    this.told = told.join();
    this.lines.forEach((line, side) => refill(line, el("b", {}, `${this.models[side].label}: `), told[side]));
  }

  #build(title) {
    const act = (action, value) => this.act(action, value);
    this.panels = this.models.map((model, side) => new Panel(model, side));
    this.strip = new TwinStrip(this.models, this.ticks, (tick) => this.goTo(tick));
    this.controls = new Controls(act, LEFT_OUT);
    this.help = new Help(() => this.options.help && this.act("help"), KEYS, SIGNS);
    this.place = el("p", { class: "mp-place" });
    this.lines = this.models.map((_, side) => el("p", { class: `sb-say sb-say${side}` }));
    this.stage = el("div", { class: "sb-stage" }, ...this.panels.map(({ root }) => root));
    this.text = el("section", { class: "mp-text", "aria-label": "Both runs as text", tabindex: 0 });
    this.root = el("section", {
      class: "minipaged sb", tabindex: 0, "aria-label": "Two runs side by side", "data-lm-suppress-shortcuts": "true",
      onkeydown: (event) => this.#onKey(event),
    },
    el("div", { class: "mp-frame-box" },
      el("header", { class: "mp-title" }, el("h2", {}, title || "Two runs, side by side"), this.place),
      el("div", { class: "sb-headline", "aria-live": "polite" }, ...this.lines),
      el("div", { class: "sb-main" }, this.stage, this.text),
      el("div", { class: "mp-bottom" }, this.strip.root, this.controls.transport, this.controls.options)),
    this.help.root);
    this.observer = new ResizeObserver(() => this.redraw());
    this.observer.observe(this.root);
  }

  #onKey(event) {
    const action = actionOf(event);
    event.stopPropagation(); // a notebook would take keys for its own
    if (action === undefined) return;
    event.preventDefault();
    this.act(action);
  }

  destroy() {
    this.pause();
    this.observer.disconnect();
    cancelAnimationFrame(this.redrawing);
    this.root.remove();
  }
}

function behind(last) {
  return last === undefined ? "there are no steps" : `behind step ${last}, the last`;
}

function read(payload, side) {
  try {
    return new RunModel(payload[side]);
  } catch (error) {
    error.message = `the ${side} one: ${error.message}`;
    throw error;
  }
}

// Runs of the same kind are told apart by their place.
function label(models) {
  const isSame = models[0].name === models[1].name;
  models.forEach((model, side) => {
    model.label = safe(isSame ? `${["Left", "Right"][side]} (${model.name})` : model.name).slice(0, 60);
  });
}

// --- a page, and a widget -------------------------------------------------------------------------

const WHAT = "These traces";

export function start(document) {
  startPage(document, {
    what: WHAT,
    heading: "minipaged: two runs, side by side",
    make: (payload) => new SideBySide(payload),
    go: goToStep,
  });
}

export function createWidget() {
  return widgetOf(WHAT, (payload) => new SideBySide(payload));
}

// `#12` names a step.
function goToStep(view, hash) {
  const found = /^#(\d+)/.exec(hash);
  if (found) view.goTo(view.ticks.findLastIndex((number) => number <= Number(found[1])) + 1);
}
