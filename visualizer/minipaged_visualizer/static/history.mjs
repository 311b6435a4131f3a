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
    this.writersOfBlock = new Map(); // as long as the block's places: who wrote, or null
  }

  // Take an event at the state before it.
  record(number, index, event, state) {
    const place = placeOf(number, index);
    for (const seq of sequencesOf(event)) push(this.ofSequence, seq, place);
    if (event.kind === "write") {
      for (const seq of event.seqs) this.#touch(nextBlock(state, seq), place, seq);
      return;
    }
    for (const block of blocksOf(event, state)) this.#touch(block, place, null);
    if (event.kind === "publish") this.parentOfHash.set(event.hash, event.parent_hash);
    if (event.kind === "hit") {
      for (const block of event.blocks) push(this.hitsOfHash, state.hashes[block], place);
    }
  }

  #touch(block, place, writer) {
    push(this.ofBlock, block, place);
    push(this.writersOfBlock, block, writer);
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

// The blocks of the pool that an event is about, if it is not a write.
function blocksOf(event, state) {
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
    default:
      return [];
  }
}

function sequencesOf(event) {
  if (event.kind === "fork") return [event.parent, event.child];
  if (event.kind === "evict") return [event.for_seq];
  return event.seqs ?? (event.seq === undefined ? [] : [event.seq]);
}

// The block that the next token of a sequence goes to.
function nextBlock(state, seq) {
  return state.tables.get(seq)?.[Math.floor((state.numTokens.get(seq) ?? 0) / state.blockSize)];
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
