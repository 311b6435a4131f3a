// The browser's reducer gives the state that Python's gives, after every event of every trace.
//
// TRACES is a folder that pytest filled: NAME.jsonl, and NAME.digests with one line an event.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const STATIC = process.env.STATIC;
const { EVENTS, readTrace } = await import(join(STATIC, "format.mjs"));
const { Replay, outputOf } = await import(join(STATIC, "reducer.mjs"));
const { MOST_KEYFRAMES, Timeline } = await import(join(STATIC, "timeline.mjs"));

const folder = process.env.TRACES;
const names = readdirSync(folder).filter((name) => name.endsWith(".jsonl"));
const read = (name) => readFileSync(join(folder, name), "utf8");
const byKey = ([left], [right]) => left - right;
const pairs = (token) => [token.id, token.text];

// Must give the same text as `canonical` in test_browser_reducer.py.
function canonical(state) {
  return JSON.stringify([
    Array.from(state.refCounts),
    state.contents.map((content) => content.map(pairs)),
    [...state.hashes.entries()].filter(([, hash]) => hash !== null),
    [...state.tables].sort(byKey),
    [...state.numTokens].sort(byKey),
    Array.from(state.swapRefCounts),
    state.swapContents.map((content) => content.map(pairs)),
    [...state.swapTables].sort(byKey),
    [...state.sequences].sort(byKey).map(([seq, s]) => [
      seq, s.name, s.numPromptTokens, s.parent, s.status, s.finishReason, outputOf(s).map(pairs),
    ]),
    [...state.attention].sort(byKey).map(([seq, recorded]) => [seq, [...recorded].sort()]),
    [state.numUsed, state.numShared, state.numCached, state.numEmptySlots],
  ]);
}

const digest = (state) => createHash("sha256").update(canonical(state)).digest("hex").slice(0, 16);

test("there are traces", () => assert.ok(names.length >= Number(process.env.LEAST)));

for (const name of names) {
  test(`same state after every event: ${name}`, () => {
    const { header, steps } = readTrace(read(name));
    const wanted = read(name.replace(".jsonl", ".digests")).split("\n");
    const state = new Replay(header.num_blocks, header.block_size, header.num_swap_blocks);
    let count = 0;
    for (const step of steps) {
      for (const event of step.events) {
        state.apply(event);
        const place = `event ${count}, in step ${step.step}: ${JSON.stringify(event)}`;
        assert.equal(digest(state), wanted[count], `${place}\nhere: ${canonical(state)}`);
        count += 1;
      }
    }
    assert.equal(count, wanted.length - 1);
  });
}

test("a walk through a timeline always shows what a replay from the start gives", () => {
  let random = 7;
  const below = (limit) => {
    random = (random * 48271) % 2147483647;
    return random % limit;
  };
  for (const name of names.slice(0, 40)) {
    const { header, steps } = readTrace(read(name));
    const wanted = read(name.replace(".jsonl", ".digests")).split("\n");
    const timeline = new Timeline(header);
    for (const step of steps) timeline.append(step);
    const before = steps.map(() => 0);
    for (let i = 1; i < steps.length; i += 1) before[i] = before[i - 1] + steps[i - 1].events.length;
    const moves = ["forwardStep", "backStep", "forwardEvent", "backEvent", "first", "last"];
    for (let turn = 0; turn < 60; turn += 1) {
      const { number } = timeline.position;
      if (turn % 3 === 0) timeline.goTo({ number: below(steps.length + 2) - 1, event: below(9) });
      else timeline[moves[below(moves.length)]]();
      const { position } = timeline;
      const events = position.number < 0 ? 0 : before[position.number] + position.event;
      if (events) assert.equal(digest(timeline.state), wanted[events - 1], `${name} from ${number}`);
      assert.equal(digest(timeline.peek(position)), digest(timeline.state));
    }
  }
});

test("a long run has few keyframes, and they lead to the right place", () => {
  const timeline = new Timeline({ num_blocks: 1, block_size: 1, num_swap_blocks: 0 });
  const numSteps = 32 * MOST_KEYFRAMES * 2 + 100;
  for (let step = 0; step < numSteps; step += 1) {
    timeline.append({ step, events: [{ kind: "request", seq: step, name: "", num_prompt_tokens: 1 }] });
  }
  assert.ok(timeline.keyframes.length < MOST_KEYFRAMES);
  for (const number of [numSteps - 1, 0, 127, 128, 129, 4000, 2047, 63, 64, numSteps - 2]) {
    timeline.goToStep(number);
    assert.equal(timeline.state.sequences.size, number + 1);
    assert.equal(timeline.peek({ number: number - 1, event: 1 }).sequences.size, number);
  }
});

test("events have the fields that Python gives them", () => {
  const python = JSON.parse(read("events.json"));
  for (const [kind, fields] of Object.entries(python)) {
    assert.deepEqual(EVENTS[kind], fields, kind);
  }
});
