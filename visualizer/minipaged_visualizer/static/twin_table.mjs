// Both runs at a step as one plain table, for those who read or hear rather than look.

import { el } from "./dom.mjs";
import { letters } from "./marks.mjs";
import { PARTS } from "./twin_charts.mjs";

const MOST_TEXT = 200; // characters of a sequence

export function textTable(models, moments) {
  const rows = [["running", "running"], ["waiting", "waiting"], ["done", "done"],
    ...PARTS.map(([name, word]) => [`slots: ${word}`, name])];
  const cells = (name) => moments.map((moment) => el("td", {}, moment[name].toLocaleString("en")));
  const heads = models.map((model) => el("th", { scope: "col" }, model.label));
  return el("table", {}, el("caption", {}, "Both runs at this step"),
    el("thead", {}, el("tr", {}, el("td", {}, ""), ...heads)),
    el("tbody", {}, ...rows.map(([word, name]) => el("tr", {}, el("th", { scope: "row" }, word), ...cells(name))),
      el("tr", {}, el("th", { scope: "row" }, "who holds what"), ...moments.map(({ state }) => el("td", {}, ...holders(state))))));
}

// Each sequence with its blocks and its words.
function holders({ tables, numTokens, contents }) {
  return [...tables].map(([seq, table]) => {
    const text = table.flatMap((block) => contents[block]).map((token) => token.text).join("").trim();
    return el("div", {}, `${letters(seq)}: ${numTokens.get(seq)} tokens in blocks ${inShort(table)}: `,
      el("bdi", {}, text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT)}…` : text));
  });
}

function inShort(blocks) {
  const isRow = blocks.length > 2 && blocks.every((block, index) => block === blocks[0] + index);
  return isRow ? `${blocks[0]} to ${blocks[blocks.length - 1]}` : blocks.join(", ");
}
