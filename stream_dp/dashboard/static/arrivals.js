/* Labels that were released for the first time. */

import { $, element, isolated } from "./dom.js";
import { whole } from "./format.js";

const FRESH_MS = 12000;
const freshUntil = new Map();  // label -> when it stops being marked as new
let newest = new Set();

export function noteNew(found, isWhole) {
  for (const [label, until] of freshUntil) if (until < Date.now()) freshUntil.delete(label);
  for (const [label] of found) if (!isWhole && !newest.has(label)) freshUntil.set(label, Date.now() + FRESH_MS);
  newest = new Set(found.map(([label]) => label));
  $("new").replaceChildren(...found.map(([label, round]) => {
    const item = document.createElement("li");
    item.append(isolated(label), " ", element("small", `round ${whole(round)}`));
    item.title = label;
    return item;
  }));
  $("no-new").hidden = found.length > 0;
}

export function isFresh(label) {
  return (freshUntil.get(label) || 0) > Date.now();
}
