// A recorded kernel run as a line of moments, and what is known at one of them.
//
// A moment is one step of one program: a load, a store, or an update of the online softmax.

// Fields that a recording leaves out hold nothing.
const EMPTY = {
  tensor: "", box: [], blocks: [], slots: [], heads: [], num_bytes: 0, values: [], tokens: [], state: [],
};
// Tokens whose bars stand beside the state, with their numbers.
export const MOST_WIDE = 10;
const CACHES = ["key_cache", "value_cache", "cache"];

export class Run {
  constructor(recording) {
    this.recording = recording;
    this.size = recording.block_size;
    this.programs = recording.programs.map((program) => ({
      ...program, steps: program.steps.map((step) => ({ ...EMPTY, ...step })),
    }));
    this.moments = this.programs.flatMap(({ steps }, program) => steps.map((_, step) => ({ program, step })));
    if (!this.moments.length) throw new Error("no program ran");
    this.firsts = this.programs.map((_, index) => this.moments.findIndex(({ program }) => program === index));
    const steps = this.programs.flatMap((program) => program.steps);
    this.isWide = steps.some(({ tokens }) => tokens.length > MOST_WIDE);
    this.hasTables = this.programs.some(({ seq }) => seq >= 0);
    this.hasWrites = steps.some((step) => step.kind === "store" && touchesBlocks(step));
    this.owners = ownersOf(recording.sequences);
  }

  get length() {
    return this.moments.length;
  }

  // Give what can be seen at a moment, for one row of the program's queries.
  at(index, row) {
    const { program: number, step: place } = this.moments[index];
    const program = this.programs[number];
    const { steps } = program;
    const step = steps[place];
    const chosen = Math.min(row, Math.max(0, program.rows.length - 1));
    return {
      run: this, index, number, program, place, step, row: chosen,
      launch: this.recording.launches[program.launch],
      sequence: program.seq < 0 ? null : this.recording.sequences[program.seq],
      tile: tileOf(steps, place),
      rounds: roundsOf(steps, place, chosen),
      get marks() { return marksOf(steps, place); }, // words need none
    };
  }

  programAfter(index, by) {
    const { program, step } = this.moments[index];
    if (by < 0 && step > 0) return this.firsts[program];
    return this.firsts[program + by] ?? (by < 0 ? 0 : this.length - 1);
  }

  // The next or previous update of the softmax; where there is none, the next or previous program.
  updateAfter(index, by) {
    for (let i = index + by; i >= 0 && i < this.length; i += by) {
      const { program, step } = this.moments[i];
      if (isUpdate(this.programs[program].steps[step])) return i;
    }
    return this.programAfter(index, by);
  }
}

function ownersOf(sequences) {
  const owners = new Map();
  sequences.forEach(({ blocks }, seq) => blocks.forEach((block, index) => {
    if (!owners.has(block)) owners.set(block, []);
    owners.get(block).push({ seq, index });
  }));
  return owners;
}

const isUpdate = ({ kind }) => kind === "update" || kind === "join";
const touchesBlocks = ({ tensor }) => CACHES.includes(tensor);

// The loads of keys and values that belong to the round of the loop at a step: blocks and slots.
function tileOf(steps, place) {
  const start = steps.slice(0, place).findLastIndex(isUpdate) + 1;
  const found = steps.slice(start, place + 1).filter(touchesBlocks);
  const newest = found[found.length - 1];
  if (!newest || (!isUpdate(steps[place]) && steps[place].tensor === "output")) return null;
  const names = found.map(({ tensor }) => tensor);
  return { blocks: newest.blocks, slots: newest.slots, hasKeys: names.includes("key_cache"),
    hasValues: names.includes("value_cache") };
}

// Each update up to a step: the state of one row, and the blocks that it was about.
function roundsOf(steps, place, row) {
  const rounds = [];
  steps.forEach((step, index) => {
    if (index > place || !isUpdate(step)) return;
    rounds.push({ ...step.state[row], tokens: step.tokens, isJoin: step.kind === "join", blocks: tileOf(steps, index)?.blocks ?? [],
      isNow: index === place });
  });
  return rounds;
}

// What a program has done, does and will do with each block: "read", "now", "ahead", or "write".
function marksOf(steps, place) {
  const marks = new Map();
  steps.forEach((step, index) => {
    if (!touchesBlocks(step)) return;
    for (const block of step.blocks) {
      if (index < place) marks.set(block, step.kind === "store" ? "written" : "read");
      else if (!marks.has(block)) marks.set(block, "ahead");
    }
  });
  const step = steps[place];
  const now = isUpdate(step) ? tileOf(steps, place)?.blocks ?? [] : touchesBlocks(step) ? step.blocks : [];
  for (const block of now) marks.set(block, step.kind === "store" ? "write" : "now");
  return marks;
}
