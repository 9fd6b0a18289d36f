/* What the server said last, what the viewer asked for, and who draws it. */

export const NORMAL_95 = 1.96;
export const ROWS_STEP = 25;

export const heard = {
  names: [], release: null, ids: [], counts: [], low: [], high: [], totals: null, total_margins: null, since: null, found: null, state: "connecting", rate: null, history: [1, 0],
  connected: false, at: 0,
};

/* `mode` is live, paused, or past: a release that was looked up.  `shown` is the release on the page; `window` is the
   span that the ranking is of, empty for all that the release counts, and `recent` that window, once it was found.
   `picked` is the span that the viewer asked for: of releases that are windows themselves there is none.  `family` is
   that of the labels that are ranked, empty for all. */
export const view = { mode: "live", shown: null, picked: "", window: "", recent: null, family: "", limit: ROWS_STEP, query: "" };
export const steps = { rounds: [], ts: [] };  // the releases that curves go through
const NOTHING = { names: [], counts: [], low: [], high: [], rank: new Map(), sd: 0 };

let listener = () => {};

export function whenChanged(draw) {
  listener = draw;
}

/* Have the page drawn: at once if the viewer did something, else with its next frame. */
export function changed(atOnce = false) {
  listener(atOnce);
}

/* What the ranking shows: the release, or the window behind it, or the labels of one family in it. */
export function ranked() {
  if (!view.window) return narrowed(view.shown);
  return view.recent && !view.recent.problem ? narrowed(view.recent) : NOTHING;
}

/* What was counted in all that is ranked, if releases tell: `units`, `over_cap` and `units_sd`. */
export function cells() {
  return (view.window ? view.recent : view.shown.release) || {};
}

export function isOfFamily(label) {
  return !view.family || label.startsWith(`${view.family}:`);
}

let narrow = { of: null, family: "", found: null };

function narrowed(all) {
  if (!view.family) return all;
  if (narrow.of !== all || narrow.family !== view.family) {
    const places = [...all.names.keys()].filter((place) => isOfFamily(all.names[place]));
    const [names, counts, low, high] = ["names", "counts", "low", "high"].map((column) => places.map((place) => all[column][place]));
    narrow = { of: all, family: view.family, found: { ...all, names, counts, low, high, rank: new Map(names.map((name, index) => [name, index])) } };
  }
  return narrow.found;
}

export function show(release, names, { counts, low, high, totals, total_margins: margins, since, found, protects, guarantee }) {
  const rank = new Map(names.map((name, index) => [name, index]));
  view.shown = { release, names, counts, low, high, totals, margins, since, found, protects, guarantee, rank };
  view.window = release.window ? "" : view.picked;
}
