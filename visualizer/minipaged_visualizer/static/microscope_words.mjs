// A moment of a kernel run in words.

import { listed, plural } from "./dom.mjs";
import { letters } from "./marks.mjs";

// A number as people read it; what is no number yet is minus infinity.
export function number(value) {
  if (value === null || value === undefined) return "−∞";
  return value.toFixed(2).replace("-", "−");
}

export function inWords(moment) {
  const { step } = moment;
  if (step.kind === "update") return updateInWords(moment);
  if (step.kind === "join") return joinInWords(moment);
  const what = `${step.kind} ${step.tensor}`;
  const words = step[NEEDED[what]]?.length === 0 ? undefined : WORDS[what];
  return words ? words(moment) : `${step.kind === "store" ? "Writes" : "Reads"} ${placeOf(step)}.`;
}

// The elements that were touched, as one would index them.
export function placeOf({ tensor, box }) {
  return `${tensor}[${box.map(([first, last]) => (first === last ? first : `${first}:${last + 1}`)).join(", ")}]`;
}

// Numbers in a row as a range: "4 to 7", else one after the other.
function spanned(values) {
  const sorted = [...new Set(values)].sort((a, b) => a - b);
  const [first, last] = [sorted[0], sorted[sorted.length - 1]];
  return sorted.length > 2 && last - first === sorted.length - 1 ? `${first} to ${last}` : listed(sorted);
}

const who = ({ program }) => (program.seq < 0 ? "the sequence" : letters(program.seq));
const blocksIn = ({ step }) => `block${step.blocks.length > 1 ? "s" : ""} ${listed(step.blocks, 20)}`;

function tokensOf({ run, sequence, step }) {
  if (!sequence) return "";
  const tokens = step.slots.map((slot) => {
    const index = sequence.blocks.indexOf(Math.floor(slot / run.size));
    return index * run.size + (slot % run.size);
  });
  return spanned(tokens);
}

const cacheRead = (what) => (moment) => {
  const heads = moment.step.heads.length ? `, KV head ${listed(moment.step.heads)}` : "";
  return `Reads the ${what} of ${blocksIn(moment)}: ${who(moment)}’s tokens ${tokensOf(moment)}${heads}.`;
};

const cacheWrite = (what) => ({ run, step }) => {
  const [slot] = step.slots;
  const [block, offset] = [Math.floor(slot / run.size), slot % run.size];
  return `Writes the ${what} into block ${block}, slot ${offset}: ${slot} = ${block} × ${run.size} + ${offset}.`;
};

const WORDS = {
  "load query": (moment) => `Loads the queries: ${listed(moment.program.rows, 3) || placeOf(moment.step)}. They share a KV head, so each key is read once for all.`,
  "load seq_lens": (moment) => `${who(moment)}’s context has ${plural(moment.step.values[0] ?? 0, "token")}: ${plural(Math.ceil((moment.step.values[0] ?? 0) / moment.run.size), "block")}.`,
  "load query_start_loc": (moment) => `${who(moment)}’s new tokens begin and end here in the packed batch: ${placeOf(moment.step)} = ${listed(moment.step.values)}.`,
  "load block_tables": entryInWords,
  "load key_cache": cacheRead("keys"),
  "load value_cache": cacheRead("values"),
  "load slot_mapping": ({ run, step }) => (step.values[0] < 0
    ? `Slot ${step.values[0]}: this token is not written.`
    : `Its slot is ${step.values[0]}: block ${Math.floor(step.values[0] / run.size)}, slot ${step.values[0] % run.size} in it.`),
  "store key_cache": cacheWrite("key"),
  "store value_cache": cacheWrite("value"),
  "load pairs": ({ step }) => `${step.box[1]?.[0] ? "The target" : "The source"} of this copy is block ${step.values[0]}.`,
  "load cache": ({ step }) => `Reads block ${listed(step.blocks)} in plane ${step.box[0]?.[0]}.`,
  "store cache": ({ step }) => `Writes block ${listed(step.blocks)} in plane ${step.box[0]?.[0]}.`,
  "store parts": (moment) => (!moment.rounds.length ? "This part of the context is empty: its attention is zeros." : `Stores this part’s attention: the weighted sum, divided by ${total(moment)}. Another kernel joins the parts.`),
  "store log_sums": ({ rounds }) => (!rounds.length ? "And its log-sum-exp is −∞: it counts nothing."
    : `Stores log-sum-exp, m + log l = ${number(logSum(rounds))}: how much this part counts among the others.`),
  "load log_sums": () => "Reads how much each part of the context counts: its log-sum-exp.",
  "load parts": () => "Reads the attention of each part, to weigh it.",
  "store output": (moment) => (moment.rounds[0]?.isJoin
    ? "Stores the output: the attention of the parts, weighed."
    : `All blocks are seen. The weighted sum, divided by ${total(moment)}, is the output.`),
};

// What a sentence is about; a recording of somebody else's may lack it.
const NEEDED = {
  "load pairs": "values", "load slot_mapping": "values", "load block_tables": "values",
  "store key_cache": "slots", "store value_cache": "slots", "load cache": "box", "store cache": "box",
};

function entryInWords(moment) {
  const { step } = moment;
  const entries = step.box[1] ?? [0, 0];
  const which = entries[0] === entries[1] ? `Entry ${entries[0]}` : `Entries ${entries[0]} to ${entries[1]}`;
  const blocks = [...new Set(step.values)];
  return `${which} of ${who(moment)}’s block table: physical block${blocks.length > 1 ? "s" : ""} ${listed(blocks, 20)}.`;
}

function logSum(rounds) {
  const { largest, total: sum } = rounds[rounds.length - 1];
  return (largest ?? -Infinity) + Math.log(sum);
}

function total({ rounds }) {
  const last = rounds[rounds.length - 1];
  return `l = ${number(last ? Math.max(1, last.total) : 1)}`;
}

function joinInWords({ rounds: [{ largest, total: sum, weights }] }) {
  const parts = weights.map((weight, part) => `part ${part} counts ${number(weight)}`);
  return `exp(log-sum-exp − ${number(largest)}): ${listed(parts, 4)}. The attention of the parts, weighed by these and divided by ${number(sum)}, is the output.`;
}

function updateInWords({ rounds }) {
  const { before, largest, rescale, total: sum, scores, weights } = rounds[rounds.length - 1];
  const seen = scores.filter((score) => score !== null);
  if (!seen.length) return "This row may see none of these tokens: they lie in its future. Nothing changes.";
  const added = number(weights.reduce((a, b) => a + b, 0));
  const old = rounds.length > 1 ? rounds[rounds.length - 2].total : 0;
  if (before === null) {
    return `First scores: the maximum is ${number(largest)}, and the weights exp(score − m) add up to l = ${number(sum)}.`;
  }
  if (largest > before) {
    return `New maximum ${number(largest)} > ${number(before)}: what was summed so far shrinks to ${number(rescale)}. `
      + `l = ${number(old)} × ${number(rescale)} + ${added} = ${number(sum)}.`;
  }
  return `No score above ${number(before)}: what was summed so far stays. l = ${number(old)} + ${added} = ${number(sum)}.`;
}
