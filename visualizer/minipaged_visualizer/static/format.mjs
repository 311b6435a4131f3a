// The lines of a trace, checked: what the browser takes is what Python takes.
//
// A step becomes {step, prefill_tokens, decode_tokens, note, events}, an event an object with its
// `kind` and its fields under the names they have in Python. Whatever is wrong is a TraceError of
// one line that names the place. Integers beyond 2^53, which a browser can't count, are refused.

export class TraceError extends Error {}

const FORMAT = "minipaged-trace";
const VERSION = 1;

// Fields in order, as in a trace. `ints` and `strs` are arrays, `pairs` an array of two integers.
export const EVENTS = {
  request: [["seq", "int"], ["name", "str"], ["num_prompt_tokens", "int"]],
  fork: [["parent", "int"], ["child", "int"]],
  hit: [["seq", "int"], ["first", "int"], ["blocks", "ints"]],
  alloc: [["seq", "int"], ["index", "int"], ["block", "int"], ["why", "str"]],
  reserve: [["seq", "int"], ["first_block", "int"], ["num_blocks", "int"], ["num_tokens", "int"]],
  share: [["seq", "int"], ["index", "int"], ["block", "int"]],
  copy: [["seq", "int"], ["index", "int"], ["source", "int"], ["target", "int"], ["why", "str"]],
  prefill: [["seq", "int"], ["start", "int"], ["tokens", "ints"], ["texts", "strs"]],
  write: [["seqs", "ints"], ["tokens", "ints"], ["texts", "strs"]],
  publish: [["block", "int"], ["hash", "str"], ["parent_hash", "str"]],
  evict: [["block", "int"], ["hash", "str"], ["for_seq", "int"]],
  preempt: [["seq", "int"], ["how", "str"], ["why", "str"]],
  swap_out: [["seq", "int"], ["moves", "pairs"]],
  swap_in: [["seq", "int"], ["moves", "pairs"]],
  sample: [["seqs", "ints"], ["tokens", "ints"], ["texts", "strs"], ["millinats", "ints"]],
  finish: [["seq", "int"], ["why", "str"]],
  release: [["seq", "int"], ["blocks", "ints"], ["why", "str"]],
  attend: [["seq", "int"], ["layer", "int"], ["head", "int"], ["permille", "ints"]],
  kernel: [
    ["name", "str"], ["program", "ints"], ["blocks", "ints"], ["line", "int"], ["code", "str"],
    ["access", "str"], ["tensor", "str"], ["slots", "ints"], ["heads", "ints"], ["num_bytes", "int"],
  ],
};

const isInt = Number.isSafeInteger;
const isString = (value) => typeof value === "string";
const isArrayOf = (check) => (value) => Array.isArray(value) && value.every(check);
const CHECKS = {
  int: [isInt, "an integer"],
  str: [isString, "a string"],
  ints: [isArrayOf(isInt), "an array of integers"],
  strs: [isArrayOf(isString), "an array of strings"],
  pairs: [
    isArrayOf((pair) => isArrayOf(isInt)(pair) && pair.length === 2),
    "an array of pairs of integers",
  ],
};
const PARALLEL = new Set(["prefill", "write", "sample"]);

// Show an untrusted value in a message: on one line, never long.
export function short(value) {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

// Give the object that an array stands for; null for one that readers ignore (`x-...`).
function readEvent(row) {
  if (!Array.isArray(row) || !isString(row[0])) {
    throw new TraceError("an event must be an array that begins with its name");
  }
  const [kind, ...values] = row;
  if (kind.startsWith("x-")) return null;
  if (!Object.hasOwn(EVENTS, kind)) throw new TraceError(`unknown event ${short(kind)}`);
  const fields = EVENTS[kind];
  if (values.length !== fields.length) {
    throw new TraceError(`event '${kind}' needs ${fields.length} fields, has ${values.length}`);
  }
  const event = { kind };
  fields.forEach(([name, type], index) => {
    const [check, words] = CHECKS[type];
    if (!check(values[index])) {
      const found = short(values[index]);
      throw new TraceError(`event '${kind}': field '${name}' must be ${words}, not ${found}`);
    }
    event[name] = values[index];
  });
  if (PARALLEL.has(kind) && new Set(values.filter(Array.isArray).map((v) => v.length)).size > 1) {
    throw new TraceError(`event '${kind}': its arrays have different lengths`);
  }
  return event;
}

export function readHeader(row) {
  if (!isObject(row) || row.format !== FORMAT) {
    throw new TraceError(`not a trace: its first line must have format '${FORMAT}'`);
  }
  if (row.version !== VERSION) {
    throw new TraceError(`trace version ${short(row.version)}, only ${VERSION} can be read`);
  }
  return {
    block_size: int(row, "block_size", 1, 2 ** 16),
    num_blocks: int(row, "num_blocks", 1, 2 ** 22),
    num_swap_blocks: int(row, "num_swap_blocks", 0, 2 ** 22, 0),
    bytes_per_block: int(row, "bytes_per_block", 0, 2 ** 53, 0),
    allocator: typed(row, "allocator", isString, "a string", "paged"),
    model: typed(row, "model", isObject, "an object", {}),
    scheduler: typed(row, "scheduler", isObject, "an object", {}),
    title: typed(row, "title", isString, "a string", ""),
  };
}

// Read a step whose number must be `first` at least. Other keys (captions) are left to views.
export function readStep(row, first) {
  if (!isObject(row)) throw new TraceError("not a JSON object");
  return {
    step: int(row, "step", first, 2 ** 53),
    prefill_tokens: int(row, "prefill_tokens", 0, 2 ** 53, 0),
    decode_tokens: int(row, "decode_tokens", 0, 2 ** 53, 0),
    note: typed(row, "note", isString, "a string", ""),
    events: typed(row, "events", Array.isArray, "an array", []).map(placed).filter(Boolean),
  };
}

// Read the text of a whole trace: {header, steps}.
export function readTrace(text) {
  const lines = text.split("\n");
  if (lines.pop() !== "") {
    throw new TraceError(`line ${lines.length + 1} is cut off; the lines before it are complete`);
  }
  if (!lines.length) throw new TraceError("not a trace: it has no complete first line");
  const header = onLine(0, () => readHeader(parse(lines[0])));
  const steps = [];
  for (let index = 1; index < lines.length; index += 1) {
    const first = steps.length ? steps[steps.length - 1].step + 1 : 0;
    steps.push(onLine(index, () => readStep(parse(lines[index]), first)));
  }
  return { header, steps };
}

function placed(row, index) {
  try {
    return readEvent(row);
  } catch (error) {
    throw new TraceError(`event ${index}: ${error.message}`);
  }
}

function onLine(index, read) {
  try {
    return read();
  } catch (error) {
    throw new TraceError(`line ${index + 1}: ${error.message}`);
  }
}

function parse(line) {
  try {
    return JSON.parse(line);
  } catch (error) {
    throw new TraceError(`not JSON (${error.message.slice(0, 100)})`);
  }
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function int(row, key, least, most, fallback) {
  const value = row[key] ?? fallback;
  if (isInt(value) && least <= value && value <= most) return value;
  const found = value === undefined ? "is missing" : `is ${short(value)}`;
  throw new TraceError(`'${key}' ${found}; it must be an integer from ${least} to ${most}`);
}

function typed(row, key, check, words, fallback) {
  const value = Object.hasOwn(row, key) ? row[key] : fallback;
  if (check(value)) return value;
  throw new TraceError(`'${key}' must be ${words}, not ${short(value)}`);
}
