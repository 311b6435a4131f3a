// Events in, the state of memory out: Python's `Replay`, event by event, in the browser.
//
// A copy of the state is a keyframe, and there are hundreds, so what lies inside (a block's tokens,
// a table, a sequence) is never changed in place: `copy` shares it, and a change puts a new one
// there. That is copy-on-write, the same idea as in the memory that is shown.

import { TraceError } from "./format.mjs";

const NOTHING = Object.freeze([]);

export class Replay {
  constructor(numBlocks, blockSize, numSwapBlocks = 0) {
    this.blockSize = blockSize;
    this.refCounts = new Int32Array(numBlocks);
    this.contents = new Array(numBlocks).fill(NOTHING);
    this.hashes = new Array(numBlocks).fill(null);
    this.tables = new Map();
    this.numTokens = new Map();
    this.swapRefCounts = new Int32Array(numSwapBlocks);
    this.swapContents = new Array(numSwapBlocks).fill(NOTHING);
    this.swapTables = new Map();
    this.sequences = new Map();
    this.attention = new Map(); // seq -> "layer,head" -> 1/1000 for each block of its table
    this.numUsed = 0;
    this.numShared = 0;
    this.numCached = 0;
    this.numFilled = 0; // slots with a token in used blocks
    this.findable = null; // the hashes as a set, made when it is needed
  }

  copy() {
    const twin = new Replay(0, this.blockSize);
    for (const name of ["refCounts", "contents", "hashes", "swapRefCounts", "swapContents"]) {
      twin[name] = this[name].slice();
    }
    for (const name of ["tables", "numTokens", "swapTables", "sequences", "attention"]) {
      twin[name] = new Map(this[name]);
    }
    for (const name of ["numUsed", "numShared", "numCached", "numFilled"]) twin[name] = this[name];
    return twin;
  }

  // Slots in used blocks that hold no token: reserved for later, or wasted in the end.
  get numEmptySlots() {
    return this.numUsed * this.blockSize - this.numFilled;
  }

  // Move on by one event. One that contradicts the state is a TraceError that tells the rule.
  apply(event) {
    HANDLERS[event.kind](this, event);
  }
}

// A sequence's output as a chain, newest first: a fork shares it, an append costs nothing.
export function outputOf(sequence) {
  const tokens = [];
  for (let link = sequence.output; link; link = link.before) tokens.push(link.token);
  return tokens.reverse();
}

const HANDLERS = {
  // --- requests ---------------------------------------------------------------------------------

  request(state, { seq, name, num_prompt_tokens: numPromptTokens }) {
    require(!state.sequences.has(seq), `seq ${seq} was requested twice`);
    require(numPromptTokens >= 1, `seq ${seq} has an empty prompt`);
    const fresh = { parent: null, status: "waiting", finishReason: "", output: null };
    state.sequences.set(seq, { name, numPromptTokens, ...fresh });
  },

  fork(state, { parent, child }) {
    const from = sequence(state, parent);
    const known = state.sequences.get(child);
    const kept = known ?? { ...from, finishReason: "" };
    state.sequences.set(child, { ...kept, parent, status: "running" });
    const hasBlocks = state.tables.has(child) || state.swapTables.has(child);
    require(!hasBlocks, `fork: seq ${child} has blocks already`);
    state.numTokens.set(child, state.numTokens.get(parent) ?? 0);
  },

  sample(state, { seqs, tokens, texts }) {
    seqs.forEach((seq, index) => {
      const token = { id: tokens[index], text: texts[index] };
      set(state, seq, { output: { token, before: sequence(state, seq).output } });
    });
  },

  preempt(state, { seq, how }) {
    require(how === "recompute" || how === "swap", `preempt: unknown way '${how.slice(0, 40)}'`);
    set(state, seq, { status: how === "swap" ? "swapped" : "preempted" });
  },

  finish(state, { seq, why }) {
    set(state, seq, { status: "finished", finishReason: why });
  },

  // --- blocks -----------------------------------------------------------------------------------

  hit(state, { seq, first, blocks }) {
    const table = tableFor(state, seq);
    require(first === table.length, `hit: entry ${first} of seq ${seq} is not next`);
    require(
      state.numTokens.get(seq) === first * state.blockSize,
      `hit: the blocks of seq ${seq} before entry ${first} are not full`,
    );
    for (const block of blocks) {
      inPool(state, block);
      require(state.hashes[block] !== null, `hit: block ${block} has no published content`);
    }
    for (const block of blocks) refer(state, block, +1);
    state.tables.set(seq, [...table, ...blocks]);
    state.numTokens.set(seq, state.numTokens.get(seq) + blocks.length * state.blockSize);
  },

  alloc(state, { seq, index, block }) {
    const table = tableFor(state, seq);
    require(index === table.length, `alloc: entry ${index} of seq ${seq} is not next`);
    take(state, block);
    state.tables.set(seq, [...table, block]);
  },

  reserve(state, { seq, first_block: first, num_blocks: size, num_tokens: numTokens }) {
    const total = state.refCounts.length;
    require(!state.tables.has(seq), `reserve: seq ${seq} has blocks already`);
    require(
      first >= 0 && size >= 1 && size <= total - first,
      `reserve: ${size} blocks from ${first} on are not in a pool of ${total}`,
    );
    require(
      numTokens >= 1 && numTokens <= size * state.blockSize,
      `reserve: ${numTokens} tokens do not fit into ${size} blocks`,
    );
    tableFor(state, seq);
    const slab = Array.from({ length: size }, (_, offset) => first + offset);
    for (const block of slab) take(state, block);
    state.tables.set(seq, slab);
  },

  share(state, { seq, index, block }) {
    const table = tableFor(state, seq);
    require(index === table.length, `share: entry ${index} of seq ${seq} is not next`);
    const { parent } = state.sequences.get(seq);
    const shared = state.tables.get(parent) ?? NOTHING;
    require(
      shared[index] === block,
      `share: block ${block} is not entry ${index} of seq ${seq}'s parent`,
    );
    refer(state, block, +1);
    state.tables.set(seq, [...table, block]);
  },

  copy(state, { seq, index, source, target }) {
    const table = existingTable(state, seq);
    require(table[index] === source, `copy: entry ${index} of seq ${seq} is not block ${source}`);
    require(state.refCounts[source] > 1, `copy: block ${source} is not shared`);
    take(state, target, state.contents[source]);
    refer(state, source, -1);
    state.tables.set(seq, replaced(table, index, target));
  },

  prefill(state, { seq, start, tokens, texts }) {
    existingTable(state, seq);
    const written = state.numTokens.get(seq);
    require(start === written, `prefill: seq ${seq} has ${written} tokens, not ${start}`);
    tokens.forEach((id, index) => writeToken(state, seq, { id, text: texts[index] }));
  },

  write(state, { seqs, tokens, texts }) {
    seqs.forEach((seq, index) => writeToken(state, seq, { id: tokens[index], text: texts[index] }));
  },

  publish(state, { block, hash }) {
    require(inPool(state, block) > 0, `publish: block ${block} is free`);
    const held = state.contents[block].length;
    require(
      held === state.blockSize,
      `publish: block ${block} holds ${held} of ${state.blockSize} tokens`,
    );
    require(state.hashes[block] === null, `publish: block ${block} has a hash already`);
    require(!findable(state).has(hash), `publish: hash '${hash.slice(0, 40)}' is known already`);
    state.hashes[block] = hash;
    findable(state).add(hash);
  },

  evict(state, { block, hash }) {
    require(inPool(state, block) === 0, `evict: block ${block} is in use`);
    require(state.hashes[block] === hash, `evict: block ${block} has another hash`);
    findable(state).delete(hash);
    state.hashes[block] = null;
    state.numCached -= 1;
  },

  release(state, { seq, blocks }) {
    const swapped = state.swapTables.has(seq);
    const tables = swapped ? state.swapTables : state.tables;
    const table = tables.get(seq) ?? NOTHING;
    const kept = table.length - blocks.length;
    require(
      kept >= 0 && same(table.slice(kept).reverse(), blocks),
      `release: ${some(blocks)} are not the tail of seq ${seq}, last first`,
    );
    for (const block of blocks) {
      const counts = swapped ? state.swapRefCounts : state.refCounts;
      require(counts[block] > 0, `release: block ${block} is free already`);
      if (swapped) counts[block] -= 1;
      else refer(state, block, -1);
    }
    state.attention.delete(seq);
    if (kept) {
      tables.set(seq, table.slice(0, kept));
    } else {
      tables.delete(seq);
      state.numTokens.delete(seq);
    }
  },

  // --- swap -------------------------------------------------------------------------------------

  swap_out(state, { seq, moves }) {
    const table = state.tables.get(seq) ?? NOTHING;
    const [sources, targets] = columns(moves);
    require(same(sources, table), `swap_out: ${some(sources)} are not the blocks of seq ${seq}`);
    for (const [source, target] of moves) {
      if (inSwap(state, target) === 0) state.swapContents[target] = state.contents[source];
      require(
        sameTokens(state.swapContents[target], state.contents[source]),
        `swap_out: swap block ${target} holds something else than block ${source}`,
      );
      refer(state, source, -1);
      state.swapRefCounts[target] += 1;
    }
    state.tables.delete(seq);
    state.attention.delete(seq);
    if (targets.length) state.swapTables.set(seq, targets);
    set(state, seq, { status: "swapped" });
  },

  swap_in(state, { seq, moves }) {
    const table = state.swapTables.get(seq) ?? NOTHING;
    const [sources, targets] = columns(moves);
    require(same(sources, table), `swap_in: ${some(sources)} are not the blocks of seq ${seq}`);
    for (const [source, target] of moves) {
      if (inPool(state, target) === 0) {
        checkTakeable(state, target);
        state.contents[target] = state.swapContents[source];
      }
      require(
        sameTokens(state.contents[target], state.swapContents[source]),
        `swap_in: block ${target} holds something else than swap block ${source}`,
      );
      state.swapRefCounts[source] -= 1;
      refer(state, target, +1);
    }
    state.swapTables.delete(seq);
    if (targets.length) state.tables.set(seq, targets);
    set(state, seq, { status: "running" });
  },

  // --- what only looks at memory ----------------------------------------------------------------

  attend(state, { seq, layer, head, permille }) {
    const size = existingTable(state, seq).length;
    require(
      permille.length <= size,
      `attend: ${permille.length} shares for the ${size} blocks of seq ${seq}`,
    );
    require(
      permille.every((share) => share >= 0) && permille.reduce((a, b) => a + b, 0) === 1000,
      `attend: the shares of seq ${seq} are not positive numbers that add up to 1000`,
    );
    const recorded = new Map(state.attention.get(seq));
    state.attention.set(seq, recorded.set(`${layer},${head}`, permille));
  },

  kernel(state, { blocks }) {
    for (const block of blocks) inPool(state, block);
  },
};

// --- small steps --------------------------------------------------------------------------------

function require(holds, rule) {
  if (!holds) throw new TraceError(rule);
}

function sequence(state, seq) {
  require(state.sequences.has(seq), `seq ${seq} was never requested`);
  return state.sequences.get(seq);
}

function set(state, seq, changes) {
  state.sequences.set(seq, { ...sequence(state, seq), ...changes });
}

function inPool(state, block) {
  const size = state.refCounts.length;
  require(block >= 0 && block < size, `block ${block} is not in a pool of ${size}`);
  return state.refCounts[block];
}

function inSwap(state, block) {
  const size = state.swapRefCounts.length;
  require(block >= 0 && block < size, `swap block ${block} is not in a swap pool of ${size}`);
  return state.swapRefCounts[block];
}

// Change a reference count, and the sums that depend on it.
function refer(state, block, by) {
  const before = state.refCounts[block];
  const after = before + by;
  state.refCounts[block] = after;
  state.numShared += (after > 1) - (before > 1);
  const becameUsed = (after > 0) - (before > 0);
  state.numUsed += becameUsed;
  state.numFilled += becameUsed * state.contents[block].length;
  if (state.hashes[block] !== null) state.numCached -= becameUsed;
}

function checkTakeable(state, block) {
  require(inPool(state, block) === 0, `block ${block} is handed out while in use`);
  require(state.hashes[block] === null, `block ${block} is handed out with its old hash`);
}

function take(state, block, content = NOTHING) {
  checkTakeable(state, block);
  state.contents[block] = content;
  refer(state, block, +1);
}

function tableFor(state, seq) {
  require(!state.swapTables.has(seq), `seq ${seq} is swapped out`);
  set(state, seq, { status: "running" });
  if (!state.numTokens.has(seq)) state.numTokens.set(seq, 0);
  if (!state.tables.has(seq)) state.tables.set(seq, NOTHING);
  return state.tables.get(seq);
}

function existingTable(state, seq) {
  require(state.tables.has(seq), `seq ${seq} has no blocks`);
  return state.tables.get(seq);
}

function writeToken(state, seq, token) {
  const table = existingTable(state, seq);
  const position = state.numTokens.get(seq);
  const index = Math.floor(position / state.blockSize);
  require(index < table.length, `write: no block for position ${position} of seq ${seq}`);
  const block = table[index];
  const count = state.refCounts[block];
  require(count === 1, `write: seq ${seq} writes to block ${block}, shared by ${count}`);
  require(
    state.hashes[block] === null,
    `write: block ${block} is published and must not change`,
  );
  const content = state.contents[block];
  const offset = position % state.blockSize;
  require(
    content.length === offset,
    `write: block ${block} holds ${content.length}, not ${offset}`,
  );
  state.contents[block] = [...content, token];
  state.numFilled += 1;
  state.numTokens.set(seq, position + 1);
}

function findable(state) {
  state.findable ??= new Set(state.hashes.filter((hash) => hash !== null));
  return state.findable;
}

function replaced(table, index, block) {
  const changed = table.slice();
  changed[index] = block;
  return changed;
}

function same(left, right) {
  return left.length === right.length && left.every((value, index) => value === right[index]);
}

function sameTokens(left, right) {
  const alike = ({ id, text }, index) => id === right[index].id && text === right[index].text;
  return left === right || (left.length === right.length && left.every(alike));
}

function columns(moves) {
  return [moves.map(([source]) => source), moves.map(([, target]) => target)];
}

function some(blocks) {
  return `blocks ${blocks.slice(0, 8).join(", ")}${blocks.length > 8 ? ", ..." : ""}`;
}
