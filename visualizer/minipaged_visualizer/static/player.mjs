// The player: one place in a trace, shown by all parts, moved by buttons, keys and time.

import { Arrows } from "./arrows.mjs";
import { Cells } from "./cells.mjs";
import { Closeup } from "./closeup.mjs";
import { Controls, actionOf, speedMoves } from "./controls.mjs";
import { el, keepingFocus, plural } from "./dom.mjs";
import { Explain } from "./explain.mjs";
import { readHeader, readStep } from "./format.mjs";
import { makeFrame } from "./frame.mjs";
import { Happened, Headline } from "./happened.mjs";
import { Help } from "./help.mjs";
import { History, positionAfter } from "./history.mjs";
import { Patterns } from "./marks.mjs";
import { PoolCanvas } from "./pool_canvas.mjs";
import { PoolSvg } from "./pool_svg.mjs";
import { Prefixes } from "./prefixes.mjs";
import { BlockTable, Rail } from "./sequences.mjs";
import { Strip } from "./strip.mjs";
import { TextTable } from "./text_table.mjs";
import { Timeline } from "./timeline.mjs";

const MOST_SVG_BLOCKS = 1024;
const RAIL_KEYS = { ArrowDown: "nextSequence", ArrowUp: "previousSequence" };
const TOGGLES = ["byEvent", "backRow", "prefixes", "text", "help", "arrows"];

export class Player {
  // `payload` is what Python's trace_payload gives. Throws a TraceError if it is none.
  constructor(payload, prefix = "mp") {
    this.timeline = new Timeline(readHeader(payload.header));
    this.story = {
      signs: payload.signs, routine: payload.routine, writeWords: payload.write_words,
    };
    this.options = {
      playing: false, byEvent: false, speed: 1, focus: null, pinned: null, block: null,
      backRow: false, prefixes: false, text: false, help: false, arrows: true,
    };
    this.onMove = () => {};
    this.#build(prefix);
    this.append(payload.steps);
  }

  // Take more steps of a running engine; who looks at the newest one goes on to the next.
  append(rows, follow = false) {
    const { timeline } = this;
    const wasAtEnd = timeline.isAtEnd;
    for (const row of rows) {
      const first = timeline.steps.length ? timeline.steps[timeline.steps.length - 1].step + 1 : 0;
      const captions = Array.isArray(row.captions) ? row.captions : [];
      timeline.append({ ...readStep(row, first), captions });
    }
    if (follow && wasAtEnd) timeline.last();
    this.redraw();
  }

  // --- moving -----------------------------------------------------------------------------------

  goTo(position, byEvent = true) {
    this.pause();
    this.options.byEvent = byEvent;
    this.#moved(this.timeline.goTo(position));
  }

  act(action, value) {
    const { timeline, options } = this;
    const moves = {
      forward: () => this.#walk(timeline.forwardStep(), false),
      back: () => this.#walk(timeline.backStep(), false),
      forwardEvent: () => this.#walk(timeline.forwardEvent(), true),
      backEvent: () => this.#walk(timeline.backEvent(), true),
      first: () => this.#walk(timeline.first(), options.byEvent),
      last: () => this.#walk(timeline.last(), options.byEvent),
      nextOfSame: () => this.#goToNeighbour(+1),
      previousOfSame: () => this.#goToNeighbour(-1),
      toggle: () => (options.playing ? this.pause() : this.play()),
      ...speedMoves(options, value),
      nextSequence: () => this.#changeFocus(+1),
      previousSequence: () => this.#changeFocus(-1),
      follow: () => { options.pinned = null; },
      close: () => {
        if (options.help) options.help = false;
        else options.block = null;
      },
    };
    if (TOGGLES.includes(action)) options[action] = !options[action];
    else moves[action]();
    if (action === "prefixes" && options.prefixes) this.revealed = this.prefixes.root;
    this.redraw();
  }

  play() {
    if (this.timeline.isAtEnd) this.timeline.first();
    this.options.playing = true;
    this.#tick();
  }

  pause() {
    this.options.playing = false;
    clearTimeout(this.timer);
  }

  selectBlock(block) {
    this.options.block = block;
    if (block !== null) this.revealed = this.explain.root;
    this.redraw();
  }

  // Keep to a sequence, or let the focus follow the events again.
  pin(seq) {
    this.options.pinned = this.options.pinned === seq ? null : seq;
    this.options.focus = seq;
    this.redraw();
  }

  #walk(moved, byEvent) {
    this.pause();
    this.options.byEvent = byEvent;
    this.#moved(moved);
  }

  #moved(moved) {
    if (moved) this.onMove(this.timeline.position);
    this.redraw();
  }

  #tick() {
    const { options, timeline } = this;
    if (!options.playing) return;
    const moved = options.byEvent ? timeline.forwardEvent() : timeline.forwardStep();
    this.#moved(moved);
    if (!moved) {
      this.pause();
      return;
    }
    this.timer = setTimeout(() => this.#tick(), 1000 / options.speed);
  }

  #goToNeighbour(by) {
    const { timeline, options } = this;
    const { ofBlock, ofSequence } = timeline.history;
    const places = options.block !== null ? ofBlock.get(options.block) : ofSequence.get(options.focus);
    const place = History.neighbour(places ?? [], timeline.position, by);
    if (place !== undefined) this.goTo(positionAfter(place));
  }

  #changeFocus(by) {
    const { order } = this.rail;
    if (!order?.length) return;
    const index = order.indexOf(this.options.focus);
    this.options.focus = order[(index + by + order.length) % order.length];
    this.options.pinned = this.options.focus;
  }

  // --- drawing ----------------------------------------------------------------------------------

  // Draw soon, once for all changes until then.
  redraw() {
    this.redrawing ??= requestAnimationFrame(() => {
      this.redrawing = null;
      keepingFocus(this.root, () => this.draw());
      this.revealed?.scrollIntoView({ block: "nearest" }); // what was asked for may lie below
      this.revealed = null;
    });
  }

  draw() {
    const frame = makeFrame(this.timeline, this.options, this.story);
    const { options, root } = this;
    options.focus = frame.focus;
    root.classList.toggle("mp-back-row", options.backRow);
    root.classList.toggle("mp-as-text", options.text);
    this.prefixes.root.hidden = !options.prefixes;
    this.text.root.hidden = !options.text;
    this.stage.hidden = options.text;
    for (const part of this.parts) if (!part.root.hidden || part === this.closeup) part.draw(frame);
    this.controls.draw(frame);
    if (options.text) return;
    this.pool.draw(new Cells(frame));
    this.swap?.draw(new Cells(frame, true));
    const target = this.table.isSwapped ? this.swap : this.pool;
    this.arrows.draw(this.table, target, options.arrows);
  }

  #build(prefix) {
    const act = (action, value) => this.act(action, value);
    const select = (block) => this.selectBlock(block);
    const go = (position) => this.goTo(position);
    this.rail = new Rail((seq) => this.pin(seq), prefix);
    this.table = new BlockTable(select);
    this.explain = new Explain(go, select);
    this.prefixes = new Prefixes(select);
    this.closeup = new Closeup();
    this.strip = new Strip((number) => {
      this.pause();
      this.#moved(this.timeline.goToStep(number));
    });
    this.text = new TextTable();
    this.help = new Help(() => this.options.help && this.act("help"));
    this.controls = new Controls(act);
    const [headline, happened] = [new Headline(), new Happened(go)];
    this.parts = [headline, this.closeup, this.rail, this.table, happened, this.explain,
      this.prefixes, this.strip, this.text, this.help];
    const pools = this.#buildPools(prefix, select);
    this.stage = el("div", { class: "mp-stage" },
      el("section", { class: "mp-rail-column" }, el("h3", {}, "Sequences"), this.rail.root),
      this.table.root, pools);
    this.arrows = new Arrows(this.stage);
    this.stage.append(this.arrows.root);
    this.root = el("section", {
      class: "minipaged", tabindex: 0, "aria-label": "Memory player",
      onkeydown: (event) => this.#onKey(event),
      // JupyterLab takes keys for its own (`d d` deletes the cell) unless the element in focus says so.
      onfocusin: ({ target }) => target.setAttribute("data-lm-suppress-shortcuts", "true"),
    },
    el("div", { class: "mp-frame-box" },
      this.#title(),
      headline.root,
      this.closeup.root,
      el("div", { class: "mp-main" }, this.stage, this.text.root,
        el("div", { class: "mp-details" }, happened.root, this.explain.root, this.prefixes.root)),
      el("div", { class: "mp-bottom" }, this.controls.transport, this.controls.options, this.strip.root)),
    this.help.root);
    this.table.scroller.addEventListener("scroll", () => this.redraw(), { passive: true });
    this.observer = new ResizeObserver(() => this.redraw());
    this.observer.observe(this.root);
  }

  #buildPools(prefix, select) {
    const { num_blocks: size, num_swap_blocks: swapSize, block_size: slots } = this.timeline.header;
    const about = `Pool of ${plural(size, "block")}`;
    const patterns = new Patterns(prefix);
    this.pool = size > MOST_SVG_BLOCKS
      ? new PoolCanvas(size, about, select)
      : new PoolSvg(size, patterns, `${prefix}-pool`, about, select);
    const parts = [el("h3", {}, "Pool ", el("small", {}, `${plural(size, "block")} of ${plural(slots, "token")}`)),
      this.pool.root];
    this.swap = null;
    if (swapSize) {
      const label = `Swap pool of ${plural(swapSize, "block")}`;
      this.swap = swapSize > MOST_SVG_BLOCKS
        ? new PoolCanvas(swapSize, label, () => {})
        : new PoolSvg(swapSize, patterns, `${prefix}-swap`, label, () => {}, { noun: "swap block", least: 64 });
      parts.push(el("h3", {}, "Swap pool ", el("small", {}, plural(swapSize, "block"))), this.swap.root);
    }
    const box = el("section", { class: "mp-pools" }, ...parts);
    const first = this.pool.root;
    if (first instanceof SVGElement) first.prepend(patterns.defs);
    else this.swap?.root.prepend(patterns.defs);
    return box;
  }

  #title() {
    const { title, model, allocator, num_blocks: size } = this.timeline.header;
    const about = [model.name, `${allocator} memory`, plural(size, "block")].filter(Boolean).join(" · ");
    return el("header", { class: "mp-title" },
      el("h2", {}, title || "A run of PagedAttention"), el("p", { class: "mp-quiet" }, about));
  }

  #onKey(event) {
    event.stopPropagation(); // a notebook would take keys for its own
    if (event.target === this.pool.root && this.#moveInPool(event.key)) {
      event.preventDefault();
      return;
    }
    const inRail = event.target === this.rail.root && RAIL_KEYS[event.key];
    const action = inRail || actionOf(event);
    if (action === undefined) return;
    event.preventDefault();
    this.act(action);
  }

  #moveInPool(key) {
    const { columns, size } = this.pool;
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[key];
    if (by === undefined) return false;
    const from = this.options.block ?? (by > 0 ? -1 : size);
    const to = this.options.block === null ? 0 : from + by;
    if (to >= 0 && to < size) this.selectBlock(to);
    return true;
  }

  destroy() {
    this.pause();
    this.observer.disconnect();
    cancelAnimationFrame(this.redrawing);
    this.root.remove();
  }
}
