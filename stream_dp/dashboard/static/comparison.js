/* Whether one label's count is larger than another's: what stream_dp/releases/difference.py says. */

import { isolated } from "./dom.js";
import { whole } from "./format.js";
import { MOST_CURVES, pinned } from "./pins.js";
import { ranked } from "./state.js";
import { start } from "./windows.js";

/* What the chart is of, as texts and elements. */
export function chartNote() {
  const compared = pinned().length === 2 && comparison(...pinned());
  if (compared) return compared;
  if (pinned().length > MOST_CURVES) return [`The first ${MOST_CURVES} pinned labels.`];
  return [pinned().length ? "The pinned labels; two are compared." : "The largest labels; pin others to see them."];
}

/* In words, of what is ranked; null if one of the two is not shown, or is known from some moment on alone. */
function comparison(label, other) {
  const first = middle(label), second = middle(other);
  if (!first || !second) return null;
  if (first.at < second.at) return comparison(other, label);
  const value = first.at - second.at, reach = Math.hypot(first.reach, second.reach);
  const least = Math.floor(value - reach), most = whole(Math.ceil(value + reach));
  const names = [isolated(label), isolated(other)];
  return least > 0 ? [names[0], " is above ", names[1], `, by ${whole(least)} to ${most} (95%).`]
    : ["Nobody can tell whether ", names[0], " or ", names[1], ` is larger: the first is at most ${most} above (95%).`];
}

/* The middle of a label's interval, and how far it reaches; one that was cut off at 0 is as long on both sides of the count. */
function middle(label) {
  const { counts, low, high, rank } = ranked(), index = rank.get(label);
  if (index === undefined || start(label)) return null;
  const at = low[index] > 0 ? (low[index] + high[index]) / 2 : Math.min(counts[index], high[index]);
  return { at, reach: high[index] - at };
}
