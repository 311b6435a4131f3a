// What two runs are doing at the same step, in words.

import { plural } from "./dom.mjs";

const number = (count) => count.toLocaleString("en");

// One run at one moment: who runs, who waits, and for what.
export function sentence(model, moment) {
  if (moment.index < 0) return "nobody has come yet.";
  const { running, waiting, preempted, done } = moment;
  if (!running && !waiting) {
    return moment.isOver ? `all ${number(done)} done since step ${model.numbers[moment.index]}.` : "nobody is there.";
  }
  const who = [`${number(running)} ${running === 1 ? "runs" : "run"}`];
  if (!waiting) who.push("nobody waits");
  else {
    const again = preempted ? ` (${number(preempted)} gave way)` : "";
    who.push(`${number(waiting)} ${waiting === 1 ? "waits" : "wait"}${again}`);
  }
  const end = moment.isOver ? " when the trace ends" : "";
  return `${who.join(", ")}${end}${waiting ? reason(model, moment) : ""}.`;
}

// Why nobody else gets in, as far as a trace tells it.
function reason(model, { state, pool, tokens, free, pieces, wanted }) {
  const longest = Math.max(0, ...pieces.map(({ size }) => size));
  if (!model.isSlabs) {
    const total = state.refCounts.length;
    return `: ${number(total - state.numUsed)} of ${plural(total, "block")} are free`;
  }
  if (!free) return `: every slot is taken, though ${number(pool - tokens)} hold no token`;
  if (wanted === null) return `: ${number(free)} slots are free`;
  return longest < wanted ? `: no hole of ${number(wanted * state.blockSize)} slots, though ${number(free)} are free` : "";
}

// Where the slots are, in words for a picture.
export function slotsInWords({ pool, tokens, reserved, internal, external, unused }) {
  const parts = [`${number(tokens)} of ${number(pool)} slots hold tokens`, `${number(reserved)} reserved`,
    `${number(internal)} internal waste`, `${number(external)} external waste`, `${number(unused)} free`];
  return parts.join(", ");
}
