/* The chart's counts as rates: how much came in a while before each moment, with how sure that is. */

import { secondsOf } from "./spans.js";
import { view } from "./state.js";

const PARTS = 12;  // the while is such a part of what is charted, if no window by time is picked

/* How long that while is, in seconds. */
export function lagOf({ times }) {
  return (view.window && secondsOf(view.window)) || (times.at(-1) - times[0]) / PARTS;
}

/* The same curves with rates per so many seconds.  Noise of two counts is taken to be independent, and so never too low. */
export function asRates(found, seconds) {
  const { times, epoch } = found, befores = placesBefore(times, epoch, lagOf(found));
  const series = found.series.map(({ label, counts, low, high }) => {
    const rates = { label, counts: [], low: [], high: [] };
    for (const [place, before] of befores.entries()) {
      const isKnown = before !== null && counts[place] !== null && counts[before] !== null;
      const each = isKnown ? seconds / (times[place] - times[before]) : 0;
      const middle = isKnown ? (counts[place] - counts[before]) * each : null;
      const reach = isKnown ? each * Math.hypot(...[place, before].map((at) => Math.max(high[at] - counts[at], counts[at] - low[at]))) : 0;
      rates.counts.push(middle === null ? null : Math.max(0, middle));
      rates.low.push(middle === null ? null : Math.max(0, middle - reach));
      rates.high.push(middle === null ? null : Math.max(0, middle + reach));
    }
    return rates;
  });
  return { ...found, series };
}

/* For each place the last one of its epoch that lies so far back; null if there is none. */
function placesBefore(times, epoch, lag) {
  let before = -1;
  return times.map((time, place) => {
    while (before + 1 < place && times[before + 1] <= time - lag) before += 1;
    return before >= 0 && epoch[before] === epoch[place] ? before : null;
  });
}
