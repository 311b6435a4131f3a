// The buttons below the picture, and the keys: both lead to the same actions.

import { el, refill } from "./dom.mjs";
import { icon } from "./marks.mjs";

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16, 32];

const KEYS = {
  " ": "toggle", ArrowRight: "forward", ArrowLeft: "back", n: "forwardEvent", p: "backEvent",
  ".": "nextOfSame", ",": "previousOfSame", Home: "first", End: "last", "+": "faster", "=": "faster",
  "-": "slower", e: "byEvent", "]": "nextSequence", "[": "previousSequence", 0: "follow",
  b: "backRow", x: "prefixes", t: "text", a: "arrows", "?": "help", Escape: "close",
};
const SHIFTED = { ArrowRight: "forwardEvent", ArrowLeft: "backEvent" };

// Give the action that a key press asks for; undefined leaves it to the browser.
export function actionOf(event, keys = KEYS, shifted = SHIFTED) {
  if (event.ctrlKey || event.metaKey || event.altKey) return undefined;
  const { target, key } = event;
  const tag = target.tagName;
  if (tag === "TEXTAREA" || (tag === "INPUT" && target.type !== "range")) return undefined;
  if (tag === "SELECT" && key !== "Escape") return undefined;
  if (tag === "BUTTON" && key === " ") return undefined;
  return (event.shiftKey && shifted[key]) || keys[key];
}

// What each view does about its speed: `value` is the chosen one.
export function speedMoves(options, value) {
  return {
    speed: () => { options.speed = value; },
    faster: () => { options.speed = SPEEDS.find((speed) => speed > options.speed) ?? options.speed; },
    slower: () => { options.speed = SPEEDS.findLast((speed) => speed < options.speed) ?? options.speed; },
  };
}

const BUTTONS = [
  ["first", "first", "To the start (Home)"],
  ["back", "back", "One step back (←)"],
  ["backEvent", "backEvent", "One event back (p)"],
  ["toggle", "play", "Play or pause (Space)"],
  ["forwardEvent", "forwardEvent", "One event forward (n)"],
  ["forward", "forward", "One step forward (→)"],
  ["last", "last", "To the newest step (End)"],
];
const SWITCHES = [
  ["byEvent", "by event", "Go event by event, not step by step (e)"],
  ["backRow", "back row", "Large type for the back row (b)"],
  ["prefixes", "prefix tree", "Show the prefix tree (x)"],
  ["text", "text", "All as a text table (t)"],
  ["help", "?", "Keys and signs (?)"],
];

export class Controls {
  // `leftOut` are the actions that a view does not have, `labels` its own words for others.
  constructor(act, leftOut = [], labels = {}) {
    const wanted = ([action]) => !leftOut.includes(action);
    this.buttons = Object.fromEntries(BUTTONS.filter(wanted).map(([action, name, label]) => [action, el("button", {
      class: action === "toggle" ? "mp-button mp-play" : "mp-button", "aria-label": labels[action] ?? label,
      title: labels[action] ?? label, onclick: () => act(action),
    }, icon(name))]));
    this.switches = Object.fromEntries(SWITCHES.filter(wanted).map(([action, words, label]) => [action, el("button", {
      class: "mp-button mp-switch", title: label, "aria-pressed": "false", onclick: () => act(action),
    }, words)]));
    this.speed = el("select", {
      class: "mp-speed", "aria-label": "Speed", onchange: () => act("speed", Number(this.speed.value)),
    }, ...SPEEDS.map((speed) => el("option", { value: speed }, `${speed}×`)));
    this.transport = el("div", { class: "mp-transport", role: "group", "aria-label": "Playing" },
      ...Object.values(this.buttons), this.speed);
    this.options = el("div", { class: "mp-options", role: "group", "aria-label": "View" },
      ...Object.values(this.switches));
  }

  draw({ options }) {
    for (const [action, button] of Object.entries(this.switches)) button.setAttribute("aria-pressed", options[action]);
    this.speed.value = String(options.speed);
    if (this.playing === options.playing) return;
    this.playing = options.playing;
    refill(this.buttons.toggle, icon(options.playing ? "pause" : "play"));
  }
}
