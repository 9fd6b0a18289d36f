/* Families of labels, such as carrier: and dest:, each ranked for itself. */

import { address, asked } from "./address.js";
import { say } from "./announcer.js";
import { $ } from "./dom.js";
import { ROWS_STEP, changed, view } from "./state.js";

const FAMILY = /^([A-Za-z0-9_.-]{1,100}):/, MOST = 20;  // as in the section [events] of a stream's settings
let of = null, offered = "";

/* The family that the address names is picked at first. */
export function restoreFamily() {
  view.family = asked("family")[0] || "";
}

export function pickFamily() {
  view.family = $("family").value;
  view.limit = ROWS_STEP;
  address("family", view.family ? [view.family] : []);
  say(view.family ? `Labels of the family ${view.family}.` : "All labels.");
  changed(true);
}

/* Families are offered if every label has one, and there are several of them. */
export function drawFamilies() {
  if (of === view.shown.names) return;
  of = view.shown.names;
  const found = new Set();
  for (const label of of) {
    found.add(FAMILY.exec(label)?.[1]);
    if (found.has(undefined) || found.size > MOST) break;
  }
  const names = found.has(undefined) || found.size < 2 || found.size > MOST ? [] : [...found].toSorted();
  if (view.family && !names.includes(view.family)) names.push(view.family);
  $("families").hidden = names.length === 0;
  if (names.join(" ") === offered) return;
  offered = names.join(" ");
  $("family").replaceChildren(new Option("all labels", ""), ...names.map((name) => new Option(name, name)));
  $("family").value = view.family;
}
