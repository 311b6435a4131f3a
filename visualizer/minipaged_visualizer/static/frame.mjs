// What is shown at one moment: the state, what changed, who owns what, and which sequence is in
// focus. Made once for every picture; all parts draw from it.

const COPIED_FROM = "«";
const STRONGEST = "!»«↓↑+=-k";
const TELLING = ["copy", "preempt", "swap_out", "swap_in", "evict", "hit", "fork", "reserve", "alloc",
  "finish", "release", "request"];
// In a whole step, the focus moves only for what is rare.
const FOLLOWED = ["copy", "preempt", "swap_out", "swap_in", "hit", "fork", "reserve"];

// Signs by block, in the pool and in the swap pool, and the number of new tokens by sequence.
function changesOf(events, signs) {
  const changes = { blocks: new Map(), swapBlocks: new Map(), newTokens: new Map() };
  const mark = (marks, block, sign) => {
    const before = marks.get(block);
    if (before === undefined || STRONGEST.indexOf(sign) < STRONGEST.indexOf(before)) {
      marks.set(block, sign);
    }
  };
  const grow = (seq, count) => changes.newTokens.set(seq, (changes.newTokens.get(seq) ?? 0) + count);
  for (const event of events) {
    const sign = signs[event.kind];
    for (const block of changedBlocks(event)) mark(changes.blocks, block, sign);
    if (event.kind === "copy") mark(changes.blocks, event.source, COPIED_FROM);
    if (event.kind === "swap_out") for (const [, to] of event.moves) mark(changes.swapBlocks, to, sign);
    if (event.kind === "write") for (const seq of event.seqs) grow(seq, 1);
    if (event.kind === "prefill") grow(event.seq, event.tokens.length);
  }
  return changes;
}

// The blocks that an event takes, shares or gives back.
export function changedBlocks(event) {
  const { kind } = event;
  if (["hit", "release", "kernel"].includes(kind)) return event.blocks;
  if (kind === "swap_out") return event.moves.map(([source]) => source);
  if (kind === "swap_in") return event.moves.map(([, target]) => target);
  if (kind === "copy") return [event.target];
  if (kind === "reserve") {
    return Array.from({ length: event.num_blocks }, (_, offset) => event.first_block + offset);
  }
  return ["alloc", "share", "evict"].includes(kind) ? [event.block] : [];
}

// Who holds each block: block -> [[seq, logical index], ...].
export function ownersOf(tables) {
  const owners = new Map();
  for (const seq of [...tables.keys()].sort((a, b) => a - b)) {
    tables.get(seq).forEach((block, index) => {
      const held = owners.get(block);
      if (held) held.push([seq, index]);
      else owners.set(block, [[seq, index]]);
    });
  }
  return owners;
}

// Attention in a deep trace: 1/1000 for each block of a sequence's table, in the last layer that is
// recorded; of heads the mean (-1) if there is one, else the first. Null where nothing is known.
export function heatOf(state, seq) {
  const recorded = state.attention.get(seq);
  if (!recorded || !state.tables.has(seq)) return null;
  const places = [...recorded.keys()].map((key) => key.split(",").map(Number));
  const [layer, head] = places.sort(([a, b], [c, d]) => c - a || b - d)[0];
  return { layer, head, permille: recorded.get(`${layer},${head}`) };
}

// The captions of a step, each with its sign and the events that it covers.
export function linesOf(step, story) {
  let first = 0;
  return (step?.captions ?? []).map(([count, text, each]) => {
    const { kind } = step.events[first] ?? {};
    const line = { sign: story.signs[kind] ?? " ", text, each, first, count, kind };
    line.routine = story.routine.includes(kind);
    first += count;
    return line;
  });
}

// The words for one event alone.
export function captionOf(step, index, story) {
  const line = linesOf(step, story).find(({ first, count }) => index < first + count);
  if (!line) return null;
  return { ...line, text: line.each ? line.each[index - line.first] : line.text };
}

// The line that tells most about a step: what is rare goes before what happens every time.
function headlineOf(lines) {
  const rank = ({ kind }) => {
    const index = TELLING.indexOf(kind);
    return index < 0 ? TELLING.length : index;
  };
  return lines.reduce((best, line) => (best && rank(best) <= rank(line) ? best : line), null);
}

export function makeFrame(timeline, options, story) {
  const { state, step, position } = timeline;
  const happened = timeline.events;
  const marked = options.byEvent ? happened.slice(-1) : happened;
  const lines = linesOf(step, story).filter(({ first }) => first < position.event);
  return {
    timeline, state, step, position, options, story, marked, lines,
    caption: options.byEvent && position.event
      ? captionOf(step, position.event - 1, story)
      : headlineOf(lines),
    changes: changesOf(marked, story.signs),
    owners: ownersOf(state.tables),
    swapOwners: ownersOf(state.swapTables),
    focus: chooseFocus(state, options, marked),
    block: options.block,
  };
}

// The pinned sequence, or the one that the newest event is about, or the last one again.
function chooseFocus(state, options, marked) {
  const holds = (seq) => state.tables.has(seq) || state.swapTables.has(seq);
  if (options.pinned !== null && state.sequences.has(options.pinned)) return options.pinned;
  const told = FOLLOWED.map((kind) => marked.find((event) => event.kind === kind)).find(Boolean);
  const telling = options.byEvent ? marked : told ? [told] : [];
  for (const event of telling) {
    const seq = event.child ?? event.seq ?? event.for_seq ?? event.seqs?.find(holds);
    const stays = event.seqs?.includes(options.focus) ? options.focus : seq;
    if (stays !== undefined && state.sequences.has(stays)) return stays;
  }
  if (options.focus !== null && holds(options.focus)) return options.focus;
  const holders = [...state.tables.keys(), ...state.swapTables.keys()];
  return holders[0] ?? [...state.sequences.keys()].pop() ?? null;
}
