/* The chart's numbers: how the counts of chosen labels grew, up to the release on show. */

import { earlierEpochs } from "./earlier.js";
import { heard, steps, view } from "./state.js";
import { trends } from "./trends.js";

const MANY_TIMES = 6;  // as long as usual without a release is a gap

/* `x`: seconds since 1970, or rounds where times do not tell them apart.  Of each label the counts and the ends of their
   intervals, null where it was not released.  `gaps`: pairs of x without releases between them where there should be.
   `begins`: the places where an epoch begins after another one. */
export function curves(labels) {
  const { nonce } = view.shown.release, own = ownEpoch();
  const isHere = heard.release && nonce === heard.release.nonce;
  const all = [...(isHere ? earlierEpochs(nonce) : []), own];
  const epochs = rise(all.flatMap(({ times }) => times)) ? all : [own];
  const times = epochs.flatMap((each) => each.times), rounds = epochs.flatMap((each) => each.rounds);
  const areTimes = rise(times) && times.length > 1;
  const series = labels.map((label) => {
    const column = (name) => epochs.flatMap((each) => each.series.get(label)?.[name] ?? each.rounds.map(() => null));
    return { label, counts: column("counts"), low: column("low"), high: column("high") };
  });
  const epoch = epochs.flatMap((each) => each.rounds.map(() => each.epoch));
  return {
    x: areTimes ? times : rounds, rounds, times, areTimes, series, epoch,
    gaps: epochs.flatMap((each) => gaps(areTimes ? each.times : each.rounds)),
    begins: epoch.map((_, place) => place).filter((place) => place > 0 && epoch[place] !== epoch[place - 1]),
  };
}

/* The epoch of the release on show, up to that release. */
function ownEpoch() {
  const { release, rank, counts, low, high } = view.shown;
  const isHere = heard.release && release.nonce === heard.release.nonce;
  const places = isHere ? steps.rounds.map((_, place) => place).filter((place) => steps.rounds[place] < release.round) : [];
  const at = { counts, low, high };
  const series = { get: (label) => {
    const before = trends.get(label), now = rank.get(label);
    const column = (name) => [...places.map((place) => before?.[name][place] ?? null), now === undefined ? null : at[name][now]];
    return { counts: column("counts"), low: column("low"), high: column("high") };
  } };
  return {
    epoch: release.epoch, series, rounds: [...places.map((place) => steps.rounds[place]), release.round],
    times: [...places.map((place) => steps.ts[place]), release.ts].map((each) => Date.parse(each) / 1000),
  };
}

function rise(times) {
  return times.every((time, place) => place === 0 || time > times[place - 1]);
}

function gaps(x) {
  const found = x.slice(1).map((each, place) => [x[place], each]);
  const usual = found.map(([from, to]) => to - from).toSorted((a, b) => a - b)[Math.floor(found.length / 2)];
  return found.length < 4 ? [] : found.filter(([from, to]) => to - from > MANY_TIMES * usual);
}
