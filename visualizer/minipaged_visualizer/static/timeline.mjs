// A trace as something to walk through, step by step or event by event, forward and back.
//
// The same as Python's Timeline: a keyframe every 32 steps at first, and going back starts at the
// nearest one before; of too many, every second one is dropped. A position {number, event} says that `event` events of the `number`-th step have happened;
// before the first step it is {number: -1, event: 0}.

import { TraceError } from "./format.mjs";
import { History } from "./history.mjs";
import { Replay } from "./reducer.mjs";

const KEYFRAME_STEPS = 32;
export const MOST_KEYFRAMES = 64;
export const START = Object.freeze({ number: -1, event: 0 });

const clamp = (value, least, most) => Math.min(Math.max(value, least), most);

export class Timeline {
  constructor(header) {
    this.header = header;
    this.steps = [];
    this.counts = []; // by step: what the strip chart draws
    this.history = new History();
    this.state = this.#empty();
    this.position = START;
    this.head = this.#empty();
    this.keyframes = [];
    this.distance = KEYFRAME_STEPS; // steps from one to the next
  }

  // Take the next step; the position stays. Throws if an event contradicts what came before.
  append(step) {
    const { head, steps } = this;
    if (steps.length && steps.length % this.distance === 0) this.#keep(head.copy());
    step.events.forEach((event, index) => {
      try {
        this.history.record(steps.length, index, event, head);
        head.apply(event);
      } catch (error) {
        const place = `step ${step.step}, event ${index} (${event.kind})`;
        throw new TraceError(`${place}: ${error.message}`);
      }
    });
    steps.push(step);
    this.counts.push({
      used: head.numUsed,
      shared: head.numShared,
      cached: head.numCached,
      empty: head.numEmptySlots,
    });
  }

  get step() {
    return this.steps[this.position.number] ?? null;
  }

  // The events of this step that have happened.
  get events() {
    return this.step ? this.step.events.slice(0, this.position.event) : [];
  }

  get isAtEnd() {
    return isSame(this.position, this.endOf(this.steps.length - 1));
  }

  endOf(number) {
    return number < 0 ? START : { number, event: this.steps[number].events.length };
  }

  // Go to any place; one outside becomes the nearest inside. Tells whether that is another place.
  goTo(position) {
    const target = this.#inside(position);
    const moved = !isSame(target, this.position);
    const isFar = this.#frameBefore(target) * this.distance - 1 > this.position.number;
    if (isFar || isBefore(target, this.position)) {
      [this.state, this.position] = this.#keyframeFor(target);
    }
    this.#applyBetween(this.state, this.position, target);
    this.position = target;
    return moved;
  }

  // Give the state at another place, without going there.
  peek(position) {
    const target = this.#inside(position);
    const [state, from] = this.#keyframeFor(target);
    this.#applyBetween(state, from, target);
    return state;
  }

  goToStep(number) {
    return this.goTo(this.endOf(clamp(number, -1, this.steps.length - 1)));
  }

  forwardStep() {
    const { number, event } = this.position;
    return this.goToStep(event < this.endOf(number).event ? number : number + 1);
  }

  backStep() {
    return this.goToStep(this.position.number - 1);
  }

  forwardEvent() {
    const { number, event } = this.position;
    if (event < this.endOf(number).event) return this.goTo({ number, event: event + 1 });
    return number + 1 < this.steps.length ? this.goTo({ number: number + 1, event: 1 }) : false;
  }

  backEvent() {
    const { number, event } = this.position;
    if (event > 1 || number < 0) return this.goTo({ number, event: event - 1 });
    return this.goTo(this.endOf(number - 1));
  }

  first() {
    return this.goTo(START);
  }

  last() {
    return this.goTo(this.endOf(this.steps.length - 1));
  }

  #empty() {
    const { num_blocks: blocks, block_size: size, num_swap_blocks: swap } = this.header;
    return new Replay(blocks, size, swap);
  }

  // Add the next keyframe; of too many, every second one stays.
  #keep(keyframe) {
    this.keyframes.push(keyframe);
    if (this.keyframes.length < MOST_KEYFRAMES) return;
    this.keyframes = this.keyframes.filter((_, index) => index % 2 === 1);
    this.distance *= 2;
  }

  #inside({ number, event }) {
    const index = clamp(number, -1, this.steps.length - 1);
    return { number: index, event: clamp(event, 0, this.endOf(index).event) };
  }

  // How many keyframes there are up to the begin of a step: the last of them is the nearest.
  #frameBefore({ number }) {
    return Math.min(Math.floor(Math.max(number, 0) / this.distance), this.keyframes.length);
  }

  #keyframeFor(position) {
    const frame = this.#frameBefore(position);
    const state = frame ? this.keyframes[frame - 1].copy() : this.#empty();
    return [state, this.endOf(frame * this.distance - 1)];
  }

  #applyBetween(state, from, to) {
    for (let index = Math.max(from.number, 0); index <= to.number; index += 1) {
      const { events } = this.steps[index];
      const start = index === from.number ? from.event : 0;
      const stop = index === to.number ? to.event : events.length;
      for (let at = start; at < stop; at += 1) state.apply(events[at]);
    }
  }
}

export function isSame(left, right) {
  return left.number === right.number && left.event === right.event;
}

function isBefore(left, right) {
  return left.number < right.number || (left.number === right.number && left.event < right.event);
}
