/* Labels that were released for the first time. */

import { $, element, isolated, visible } from "./dom.js";
import { whole } from "./format.js";
import { heard, view } from "./state.js";

const FRESH_MS = 12000;
const freshUntil = new Map();  // label -> when it stops being marked as new
let arrived = [], newest = new Set();

export function noteNew(found, isWhole) {
  for (const [label, until] of freshUntil) if (until < Date.now()) freshUntil.delete(label);
  for (const [label] of found) if (!isWhole && !newest.has(label)) freshUntil.set(label, Date.now() + FRESH_MS);
  newest = new Set(found.map(([label]) => label));
  arrived = found;
}

/* Those that were there by the release on show. */
export function drawArrivals() {
  const { round, nonce } = view.shown.release;
  const found = nonce === heard.release.nonce ? arrived.filter(([, first]) => first <= round) : [];
  const key = JSON.stringify(found);
  if ($("new").dataset.key === key) return;
  $("new").dataset.key = key;
  $("new").replaceChildren(...found.map(([label, first]) => {
    const item = document.createElement("li");
    item.append(isolated(label), " ", element("small", `round ${whole(first)}`));
    item.title = visible(label);
    return item;
  }));
  $("no-new").hidden = found.length > 0;
}

export function isFresh(label) {
  return (freshUntil.get(label) || 0) > Date.now();
}
