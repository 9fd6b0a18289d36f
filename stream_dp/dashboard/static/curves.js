/* The chart's numbers: how the counts of chosen labels grew, up to the release on show. */

import { heard, steps, view } from "./state.js";
import { trends } from "./trends.js";

const MANY_TIMES = 6;  // as long as usual without a release is a gap

/* `x`: seconds since 1970, or rounds where times do not tell them apart.  Of each label the counts and the ends of their
   intervals, null where it was not released.  `gaps`: pairs of x without releases between them where there should be. */
export function curves(labels) {
  const { release, rank, counts, low, high } = view.shown;
  const isHere = heard.release && release.nonce === heard.release.nonce;
  const places = isHere ? steps.rounds.map((_, place) => place).filter((place) => steps.rounds[place] < release.round) : [];
  const rounds = [...places.map((place) => steps.rounds[place]), release.round];
  const times = [...places.map((place) => steps.ts[place]), release.ts].map((each) => Date.parse(each) / 1000);
  const areTimes = times.every((time, place) => place === 0 || time > times[place - 1]) && times.length > 1;
  const series = labels.map((label) => {
    const before = trends.get(label), now = rank.get(label);
    const column = (name, last) => [...places.map((place) => before?.[name][place] ?? null), now === undefined ? null : last[now]];
    return { label, counts: column("counts", counts), low: column("low", low), high: column("high", high) };
  });
  const x = areTimes ? times : rounds;
  return { x, rounds, times, areTimes, series, gaps: gaps(x) };
}

function gaps(x) {
  const found = x.slice(1).map((each, place) => [x[place], each]);
  const usual = found.map(([from, to]) => to - from).toSorted((a, b) => a - b)[Math.floor(found.length / 2)];
  return found.length < 4 ? [] : found.filter(([from, to]) => to - from > MANY_TIMES * usual);
}
