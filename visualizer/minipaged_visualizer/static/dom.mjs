// Small helpers to build elements. Text becomes text nodes, made harmless first; never markup.

const SVG = "http://www.w3.org/2000/svg";
const NAMED = { "\n": "↵", "\r": "␍", "\t": "⇥", "\x7f": "␡", "\u2028": "↵", "\u2029": "↵" };
const NUMBERS = new Intl.NumberFormat("en");
const UNSEEN = /[\p{C}\u2028\u2029]/gu;

// Give text in which every character can be seen: no control, no mark that turns a line around.
export function safe(text) {
  return String(text).replace(UNSEEN, (character) => {
    if (NAMED[character]) return NAMED[character];
    const code = character.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return code === 0x200d ? character : "�"; // the joiner only changes how an emoji looks
  });
}

// Build an element: attributes, `on...` listeners, and children (nodes, text, or nothing).
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// A token's text, kept apart from its neighbours whatever direction it is written in.
export function token(text, className = "tok") {
  return el("bdi", { class: className }, text === "" ? "∅" : text);
}

// Put other children into an element, in one go.
export function refill(node, ...children) {
  node.replaceChildren(...asNodes(children));
  return node;
}

// Make these elements the children of a node, and touch only those that differ: layout is dear.
export function update(node, children) {
  children.forEach((child, index) => {
    const there = node.children[index];
    if (!there) node.append(child);
    else if (there !== child) there.replaceWith(child);
  });
  while (node.childNodes.length > children.length) node.lastChild.remove();
}

// Draw anew, and let the focus be where it was: at what stands in that place now, else at `root`.
export function keepingFocus(root, draw) {
  const page = root.getRootNode();
  const active = page.activeElement;
  const places = active !== root && root.contains(active) ? placesBelow(root, active) : [];
  draw();
  if (!places.length || isShown(active)) return;
  const there = places.reduce((node, place) => node?.children[place], root);
  if (isShown(there)) there.focus({ preventScroll: true });
  if (page.activeElement !== there || !isShown(there)) root.focus({ preventScroll: true });
}

const isShown = (node) => Boolean(node?.isConnected && node.getClientRects().length);

// Which child of which child of `root` a node is.
function placesBelow(root, node) {
  const places = [];
  for (let at = node; at !== root; at = at.parentNode) places.unshift([...at.parentNode.children].indexOf(at));
  return places;
}

// What was made for an id is kept as long as its key is the same, and it is asked for every time.
export class Kept {
  constructor() {
    this.before = new Map();
    this.now = new Map();
  }

  get(id, key, make) {
    const before = this.before.get(id);
    const made = before?.key === key ? before : { key, value: make() };
    this.now.set(id, made);
    return made.value;
  }

  // Forget what was not asked for since the last time.
  sweep() {
    this.before = this.now;
    this.now = new Map();
  }
}

// Join things as people do, in Python's way: of many, only the first few are named.
export function listed(items, limit = 12) {
  const isLong = items.length > limit + 1;
  const shown = items.slice(0, isLong ? limit : items.length).map(String);
  if (isLong) shown.push(`${items.length - limit} more`);
  const last = shown.pop() ?? "";
  return shown.length ? `${shown.join(", ")} and ${last}` : last;
}

export function plural(count, noun) {
  return `${NUMBERS.format(count)} ${noun}${count === 1 ? "" : "s"}`;
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-") && value !== null) node.setAttribute(name, String(value));
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, value);
    }
  }
  node.append(...asNodes(children));
  return node;
}

function asNodes(children) {
  return children
    .flat()
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(safe(child))));
}
