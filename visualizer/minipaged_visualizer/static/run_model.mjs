// One run, looked at once a step: who runs and who waits, and where every slot of the pool goes.
//
// A step is looked at behind its last write, when everybody in it still holds what they have. The
// kinds of slots are those of Python's `waste_kinds`: a slot that is held and empty is *reserved* if
// it will have a token before it is given back, *internal* if it never will, *rounding* if it is in
// a slab beyond what was asked for. That needs the future, and a trace has it.

import { readHeader, readStep } from "./format.mjs";
import { Replay } from "./reducer.mjs";
import { Tenancies } from "./tenancies.mjs";
import { Timeline, START } from "./timeline.mjs";

const NAMES = new Map([
  ["paged", "Paged"], ["orca-max", "Slabs (Max)"], ["orca-pow2", "Slabs (Pow2)"],
  ["orca-oracle", "Slabs (Oracle)"],
]);
export const WAITING = ["waiting", "preempted", "swapped"];

export class RunModel {
  // `payload` is {header, steps}. Throws a TraceError if the trace is malformed.
  constructor(payload) {
    this.timeline = new Timeline(readHeader(payload.header));
    const { steps, header } = this.timeline;
    for (const row of payload.steps) {
      this.timeline.append(readStep(row, steps.length ? steps[steps.length - 1].step + 1 : 0));
    }
    this.numbers = steps.map(({ step }) => step);
    this.name = NAMES.get(header.allocator) ?? header.allocator;
    this.reserves = reservesOf(steps);
    this.isSlabs = this.reserves.size > 0;
    this.tenancies = new Tenancies(header.block_size);
    this.rows = this.#walk(steps, header);
    this.firstWait = this.rows.findIndex(({ waiting }) => waiting > 0);
  }

  // Whether everybody is done in the end.
  get isDone() {
    return [...this.timeline.head.sequences.values()].every(({ status }) => status === "finished");
  }

  // Go to where the run is at step `number` (the last one up to it), and tell all about it.
  at(number) {
    const { timeline, numbers, rows } = this;
    const index = lastUpTo(numbers, number);
    const isOver = index === numbers.length - 1 && number > (numbers[index] ?? -1);
    timeline.goTo(isOver ? timeline.endOf(index) : placeIn(timeline.steps, index));
    const row = isOver || index < 0 ? this.#rowOutside(timeline.state) : rows[index];
    const moment = { index, isOver, state: timeline.state, ...row };
    return { ...moment, ...this.#hole(moment) };
  }

  // How a block is used at a moment: slots with tokens, reserved, internal, and of rounding.
  kindsOf(block, { index, isOver, state }) {
    const { blockSize, refCounts, contents } = state;
    const row = isOver ? Infinity : index;
    const { asked, filled } = this.tenancies.at(block, row) ?? { asked: blockSize, filled: 0 };
    const tokens = refCounts[block] ? contents[block].length : 0;
    const last = Math.max(filled, tokens);
    return { tokens, reserved: last - tokens, internal: asked - last, rounding: blockSize - asked };
  }

  // Follow all events once. What turns out to be internal is known when a block is given back, and
  // is then added to all rows since it was taken.
  #walk(steps, header) {
    const state = new Replay(header.num_blocks, header.block_size, header.num_swap_blocks);
    const statuses = { running: 0, waiting: 0, preempted: 0, swapped: 0, finished: 0 };
    const rows = [];
    const look = () => rows.push({ ...countsOf(state, this.tenancies.rounding), ...counted(statuses) });
    steps.forEach((step, number) => {
      const stop = behindLastWrite(step.events);
      step.events.forEach((event, at) => {
        if (at === stop) look();
        apply(state, event, statuses);
        this.tenancies.follow(event, state, at < stop ? number : number + 1);
      });
      if (stop === step.events.length) look();
    });
    this.tenancies.end(state, steps.length);
    const internal = this.tenancies.internal(rows.length);
    return rows.map((row, number) => split(row, internal[number]));
  }

  // Before the first step, or behind the last: what is held then is held for nothing.
  #rowOutside(state) {
    const counts = countsOf(state, this.tenancies.roundingOf(state));
    return split({ ...counts, ...statusesOf(state) }, counts.empty);
  }

  // Of slabs: the pieces that are free, and the one that the first who waits needs (blocks), where
  // the trace tells it.
  #hole({ index, state, waiting }) {
    if (!this.isSlabs) return { pieces: [], wanted: null };
    const first = [...state.sequences].find(([, { status }]) => WAITING.includes(status))?.[0];
    const next = waiting ? (this.reserves.get(first) ?? []).find(({ number }) => number > index) : null;
    return { pieces: freePieces(state.refCounts), wanted: next?.size ?? null };
  }
}

// --- small steps --------------------------------------------------------------------------------

function placeIn(steps, index) {
  return index < 0 ? START : { number: index, event: behindLastWrite(steps[index].events) };
}

// How many events there are up to the last write; all, where there is none.
function behindLastWrite(events) {
  const last = events.findLastIndex(({ kind }) => kind === "prefill" || kind === "write");
  return last < 0 ? events.length : last + 1;
}

function lastUpTo(numbers, number) {
  let [low, high] = [0, numbers.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= number) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function countsOf(state, rounding) {
  const pool = state.refCounts.length * state.blockSize;
  const held = state.numUsed * state.blockSize;
  const tokens = state.numFilled;
  return { pool, tokens, empty: held - tokens - rounding, rounding, free: pool - held };
}

// What is free is waste while somebody waits, as the paper counts it.
function split(row, internal) {
  const lost = row.waiting ? row.free : 0;
  const reserved = row.empty - internal;
  const external = row.rounding + lost;
  return { ...row, reserved, internal, external, unused: row.free - lost, waste: reserved + internal + external };
}

function counted({ running, waiting, preempted, swapped, finished }) {
  return { running, waiting: waiting + preempted + swapped, preempted: preempted + swapped, done: finished };
}

function statusesOf(state) {
  const statuses = { running: 0, waiting: 0, preempted: 0, swapped: 0, finished: 0 };
  for (const { status } of state.sequences.values()) statuses[status] += 1;
  return counted(statuses);
}

function apply(state, event, statuses) {
  const seq = event.child ?? event.seq;
  const before = state.sequences.get(seq)?.status;
  state.apply(event);
  const after = state.sequences.get(seq)?.status;
  if (before) statuses[before] -= 1;
  if (after) statuses[after] += 1;
}

// seq -> [{number, size}, ...]: the slabs that it gets, in blocks.
function reservesOf(steps) {
  const reserves = new Map();
  steps.forEach(({ events }, number) => {
    for (const { kind, seq, num_blocks: size } of events) {
      if (kind === "reserve") reserves.set(seq, [...(reserves.get(seq) ?? []), { number, size }]);
    }
  });
  return reserves;
}

// Free runs as a buddy allocator has them: {first, size}, a power of two long, at a multiple of it.
function freePieces(refCounts) {
  const pieces = [];
  let block = 0;
  while (block < refCounts.length) {
    if (refCounts[block]) {
      block += 1;
      continue;
    }
    let stop = block;
    while (stop < refCounts.length && !refCounts[stop]) stop += 1;
    while (block < stop) {
      let size = 1;
      while (block % (2 * size) === 0 && block + 2 * size <= stop) size *= 2;
      pieces.push({ first: block, size });
      block += size;
    }
  }
  return pieces;
}
