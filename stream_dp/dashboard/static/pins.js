/* Labels that the viewer pinned: they stay on top of the table, and the chart is of them. */

import { address, asked } from "./address.js";
import { ofPlace, remember, remembered } from "./memory.js";
import { isOfFamily, view } from "./state.js";

export const MOST_PINS = 20, MOST_CURVES = 8;
const LARGEST = 5;
const PINS = ofPlace("pins");
const named = asked("label");
const pins = new Set((named.length ? named : remembered(PINS, [])).filter((each) => typeof each === "string").slice(0, MOST_PINS));

export function pinned() {
  return [...pins];
}

export function isPinned(label) {
  return pins.has(label);
}

/* Pin it, or pin it no longer; whether that could be done. */
export function toggle(label) {
  if (pins.has(label)) pins.delete(label);
  else if (pins.size < MOST_PINS) pins.add(label);
  else return false;
  remember(PINS, pinned());
  tellPins();
  return true;
}

/* What the chart is of: the pinned labels, or the largest ones if none is. */
export function chosen() {
  return pins.size ? pinned().slice(0, MOST_CURVES) : view.shown.names.filter(isOfFamily).slice(0, LARGEST);
}

export function tellPins() {
  address("label", pinned());
}
