/* What the server said last, what the viewer asked for, and who draws it. */

export const API = `${location.origin}${location.pathname.replace(/[^/]*$/, "")}api/v1`;  // without a name and password that the address may hold
export const NORMAL_95 = 1.96;
export const ROWS_STEP = 25;

export const heard = {
  names: [], release: null, ids: [], counts: [], low: [], high: [], state: "connecting", rate: null, history: [1, 0],
  connected: false, at: 0,
};

/* `mode` is live, paused, or past: a release that was looked up.  `shown` is the release on the page. */
export const view = { mode: "live", shown: null, limit: ROWS_STEP, query: "" };

let listener = () => {};

export function whenChanged(draw) {
  listener = draw;
}

/* Have the page drawn: at once if the viewer did something, else with its next frame. */
export function changed(atOnce = false) {
  listener(atOnce);
}

export function show(release, names, { counts, low, high, promise }) {
  const rank = new Map(names.map((name, index) => [name, index]));
  view.shown = { release, names, counts, low, high, promise, rank };
}
