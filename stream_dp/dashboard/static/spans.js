/* How far windows reach back: 90s, 5m, 1h, 7d, or a number of rounds. */

import { whole } from "./format.js";

const UNITS = { s: "second", m: "minute", h: "hour", d: "day" };
const SECONDS = { s: 1, m: 60, h: 3600, d: 86400 };

export function inWords(span) {
  const unit = UNITS[span.at(-1)], number = unit ? span.slice(0, -1) : span;
  return number === "1" ? `last ${unit || "round"}` : `last ${whole(number)} ${unit || "round"}s`;
}

/* How long a window is; 0 if it is so many rounds. */
export function secondsOf(span) {
  return SECONDS[span.at(-1)] ? SECONDS[span.at(-1)] * Number(span.slice(0, -1)) : 0;
}
