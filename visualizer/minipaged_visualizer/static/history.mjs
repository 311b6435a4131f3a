// Which event touched which block and which sequence: "explain this block" and the keys , and .
//
// A place is one number, so that it sorts: step index * 2^20 + index of the event in its step.

const EVENTS_A_STEP = 2 ** 20;

export const placeOf = (number, index) => number * EVENTS_A_STEP + index;
// The position right after the event at a place.
export const positionAfter = (place) => ({
  number: Math.floor(place / EVENTS_A_STEP),
  event: (place % EVENTS_A_STEP) + 1,
});
// The place of the newest event that has happened at a position.
export const newestPlace = ({ number, event }) => placeOf(number, event - 1);

export class History {
  constructor() {
    this.ofBlock = new Map();
    this.ofSequence = new Map();
    this.hitsOfHash = new Map();
    this.parentOfHash = new Map();
    this.writers = new Map(); // place of a write of several -> block -> sequence
  }

  // Take an event at the state before it.
  record(number, index, event, state) {
    const place = placeOf(number, index);
    for (const block of new Set(blocksOf(event, state))) push(this.ofBlock, block, place);
    for (const seq of new Set(sequencesOf(event))) push(this.ofSequence, seq, place);
    if (event.kind === "write" && event.seqs.length > 1) {
      const writers = event.seqs.map((seq) => [blocksFrom(state, seq, 1)[0], seq]);
      this.writers.set(place, new Map(writers));
    }
    if (event.kind === "publish") this.parentOfHash.set(event.hash, event.parent_hash);
    if (event.kind === "hit") {
      for (const block of event.blocks) push(this.hitsOfHash, state.hashes[block], place);
    }
  }

  // The next (by = 1) or previous (by = -1) place in a list, seen from a position; else undefined.
  static neighbour(places, position, by) {
    const here = newestPlace(position);
    const index = upperBound(places, here); // the first place after this one
    if (by > 0) return places[index];
    const isOnOne = index > 0 && places[index - 1] === here;
    return places[index - (isOnOne ? 2 : 1)];
  }

  // How many places have happened at a position.
  static count(places, position) {
    return places ? upperBound(places, newestPlace(position)) : 0;
  }
}

// The blocks of the pool that an event is about.
export function blocksOf(event, state) {
  switch (event.kind) {
    case "hit":
    case "kernel":
      return event.blocks;
    case "release":
      return state.swapTables.has(event.seq) ? [] : event.blocks;
    case "alloc":
    case "share":
    case "publish":
    case "evict":
      return [event.block];
    case "reserve":
      return Array.from({ length: event.num_blocks }, (_, offset) => event.first_block + offset);
    case "copy":
      return [event.source, event.target];
    case "swap_out":
      return event.moves.map(([source]) => source);
    case "swap_in":
      return event.moves.map(([, target]) => target);
    case "prefill":
      return blocksFrom(state, event.seq, event.tokens.length);
    case "write":
      return event.seqs.flatMap((seq) => blocksFrom(state, seq, 1));
    default:
      return [];
  }
}

export function sequencesOf(event) {
  if (event.kind === "fork") return [event.parent, event.child];
  if (event.kind === "evict") return [event.for_seq];
  return event.seqs ?? (event.seq === undefined ? [] : [event.seq]);
}

// The blocks that the next `count` tokens of a sequence go to.
function blocksFrom(state, seq, count) {
  const first = state.numTokens.get(seq) ?? 0;
  const size = state.blockSize;
  const table = state.tables.get(seq) ?? [];
  return table.slice(Math.floor(first / size), Math.floor((first + count - 1) / size) + 1);
}

function push(map, key, place) {
  const places = map.get(key);
  if (places) places.push(place);
  else map.set(key, [place]);
}

function upperBound(places, value) {
  let [low, high] = [0, places.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}
