// What turns out about slots when they are given back: how many of a block's were never used.

import { changedBlocks } from "./frame.mjs";

// Who had each block, from which row on, and how many tokens it held in the end.
export class Tenancies {
  constructor(blockSize) {
    this.blockSize = blockSize;
    this.ofBlock = new Map(); // block -> [{since, until, asked, filled}, ...]
    this.open = new Map();
    this.rounding = 0; // slots of it that are held now
  }

  follow(event, state, row) {
    for (const block of changedBlocks(event)) {
      const isUsed = state.refCounts[block] > 0;
      if (isUsed && !this.open.has(block)) this.#begin(block, row, this.#askedOf(event, block));
      else if (!isUsed && this.open.has(block)) this.#close(block, row, state);
    }
  }

  end(state, row) {
    for (const block of [...this.open.keys()]) this.#close(block, row, state);
  }

  at(block, row) {
    return this.ofBlock.get(block)?.findLast(({ since }) => since <= row);
  }

  // The same sum for a state before all rows, or behind them.
  roundingOf({ refCounts }) {
    let sum = 0;
    refCounts.forEach((count, block) => {
      if (count) sum += this.blockSize - this.at(block, Infinity).asked;
    });
    return sum;
  }

  // Slots of each row that are held and never get a token.
  internal(numRows) {
    const changes = new Array(numRows + 1).fill(0);
    for (const { since, until, asked, filled } of [...this.ofBlock.values()].flat()) {
      changes[since] += asked - filled;
      changes[until] -= asked - filled;
    }
    let sum = 0;
    return changes.slice(0, -1).map((change) => (sum += change));
  }

  #begin(block, since, asked) {
    const tenancy = { since, until: null, asked, filled: 0 };
    const before = this.ofBlock.get(block);
    if (before) before.push(tenancy);
    else this.ofBlock.set(block, [tenancy]);
    this.open.set(block, tenancy);
    this.rounding += this.blockSize - asked;
  }

  #close(block, until, state) {
    const tenancy = this.open.get(block);
    tenancy.until = until;
    tenancy.filled = state.contents[block].length;
    this.rounding -= this.blockSize - tenancy.asked;
    this.open.delete(block);
  }

  #askedOf(event, block) {
    if (event.kind !== "reserve") return this.blockSize;
    const rest = event.num_tokens - (block - event.first_block) * this.blockSize;
    return Math.min(Math.max(rest, 0), this.blockSize);
  }
}
