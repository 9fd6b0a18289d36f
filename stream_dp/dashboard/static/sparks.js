/* How a count grew, as a line in a box of 100 by 24. */

import { drawing } from "./dom.js";
import { whole } from "./format.js";

export function sparkline() {
  const made = drawing("0 0 100 24");
  made.setAttribute("preserveAspectRatio", "none");
  made.setAttribute("role", "img");
  return made;
}

/* Gaps are null.  Rounds lie between 0 and the last of them. */
export function spark(rounds, counts) {
  const last = rounds[counts.length - 1] || 1, largest = Math.max(1, ...counts);
  let path = "", pen = "M";
  counts.forEach((count, index) => {
    if (count === null) { pen = "M"; return; }
    const point = `${(100 * rounds[index] / last).toFixed(1)} ${(22 - 20 * Math.max(0, count) / largest).toFixed(1)}`;
    path += pen === "M" ? `M${point}h0` : `L${point}`;  // h0: a point between two gaps is a dot
    pen = "L";
  });
  return path;
}

/* What it says to whoever does not see it. */
export function inWords(counts) {
  const known = counts.filter((count) => count !== null);
  return known.length ? `from ${whole(known[0])} to ${whole(known.at(-1))}` : "no earlier releases";
}
