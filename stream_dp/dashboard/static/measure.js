/* What the numbers of the ranking and the chart are shown as: counts, so many in a time, or shares of all that was counted. */

import { address, asked } from "./address.js";
import { say } from "./announcer.js";
import { $ } from "./dom.js";
import { percent, rate, whole } from "./format.js";
import { secondsOf } from "./spans.js";
import { NORMAL_95, cells, changed, steps, view } from "./state.js";

const SECONDS = { minute: 60, hour: 3600, day: 86400 };
const COUNTS = { column: "", count: whole, low: whole, high: whole };
let picked = "";

export function restoreMeasure() {
  const named = asked("as")[0] || "";
  if (named in SECONDS || named === "share") $("measure").value = picked = named;
}

export function pickMeasure() {
  picked = $("measure").value;
  address("as", picked ? [picked] : []);
  say(`Shown as ${$("measure").selectedOptions[0].textContent}.`);
  changed(true);
}

/* What can be told of what is ranked may be picked. */
export function drawMeasure() {
  const seconds = covered(), isShare = Boolean(units());
  for (const option of $("measure").options) {
    option.disabled = option.value === "share" ? !isShare : Boolean(option.value) && !seconds;
  }
}

/* How to write a count and the ends of its interval, and the name of the column; counts where nothing else can be told. */
export function measured() {
  const seconds = covered();
  if (picked in SECONDS && seconds) {
    const tell = (value) => rate(value * SECONDS[picked] / seconds);
    return { column: `Per ${picked}`, count: tell, low: tell, high: tell };
  }
  const all = units();
  if (picked !== "share" || !all) return COUNTS;
  const reach = NORMAL_95 * cells().units_sd;
  return { column: "Share", count: shareOf(all), low: shareOf(all + reach), high: shareOf(all - reach) };
}

function shareOf(all) {
  return (value) => percent(Math.min(1, value / all));
}

/* The time of which the chart shows how much comes; null if it shows counts. */
export function charted() {
  return picked in SECONDS ? { seconds: SECONDS[picked], name: `per ${picked}` } : null;
}

/* How many seconds what is ranked counts; null if nobody can tell. */
function covered() {
  const { release } = view.shown, { recent } = view;
  if (release.window) return null;
  if (view.window) {
    if (!recent || recent.problem) return null;
    return (recent.complete && secondsOf(view.window)) || between(recent.since, recent.ts) || sinceBeginning(recent.ts);
  }
  return sinceBeginning(release.ts);
}

/* From the first round on; when that was is known if it is kept. */
function sinceBeginning(ts) {
  return steps.rounds[0] === 1 ? between(steps.ts[0], ts) : null;
}

function between(from, to) {
  return (from && Math.max(0, Date.parse(to) - Date.parse(from)) / 1000) || null;
}

/* All that was counted in what is ranked, with noise, if releases tell it. */
function units() {
  const { units: all, units_sd: sd } = cells();
  return all > NORMAL_95 * sd ? all : null;
}
