/* Sparklines: fetched for the visible rows, and again when the server's history has grown. */

import { whole } from "./format.js";
import { rows } from "./rows.js";
import { API, heard, view } from "./state.js";

const TREND_MS = 2000, LONGEST_QUESTION = 8000, MOST_LABELS = 100;
export const trends = new Map();  // label -> its counts, for visible rows only
export const request = { busy: false, at: 0, key: "", nonce: "" };

export async function refreshTrends(force) {
  const { nonce } = view.shown.release;
  if (request.nonce !== nonce) forget(nonce);
  const key = heard.history.join(":");
  const missing = [...rows.keys()].some((label) => !trends.has(label));
  const isTooSoon = !force && Date.now() - request.at < TREND_MS;
  if (request.busy || !heard.connected || nonce !== heard.release.nonce || (key === request.key && !missing) || isTooSoon) return;
  request.busy = true;
  request.at = Date.now();
  try {
    for (const some of questions([...rows.keys()])) {
      const answer = await fetch(`${API}/history?${some}`);
      if (!answer.ok) return;
      const { rounds, series } = await answer.json();
      if (request.nonce !== nonce) return;  // another epoch is shown by now
      for (const { label, counts } of series) if (rows.has(label)) { trends.set(label, counts); drawTrend(label, rounds, counts); }
    }
    request.key = key;
  } catch { /* the connection is watched elsewhere */ } finally {
    request.busy = false;
  }
}

function forget(nonce) {
  trends.clear();
  request.key = "";
  request.nonce = nonce;
  for (const label of rows.keys()) drawTrend(label, [], []);
}

/* The labels as queries, none longer than servers take. */
function questions(labels) {
  const found = [];
  let length = Infinity;
  for (const label of labels) {
    const asked = `label=${encodeURIComponent(label)}`;
    if (length + asked.length + 1 > LONGEST_QUESTION || found.at(-1).length >= MOST_LABELS) { found.push([]); length = 0; }
    found.at(-1).push(asked);
    length += asked.length + 1;
  }
  return found.map((some) => some.join("&"));
}

function drawTrend(label, rounds, counts) {
  const end = rounds.at(-1) || 1, largest = Math.max(1, ...counts);
  let path = "", pen = "M", first = null, last = null;
  counts.forEach((count, index) => {
    if (count === null) { pen = "M"; return; }
    const point = `${(100 * rounds[index] / end).toFixed(1)} ${(22 - 20 * Math.max(0, count) / largest).toFixed(1)}`;
    path += pen === "M" ? `M${point}h0` : `L${point}`;  // h0: a point between two gaps is a dot
    pen = "L";
    first ??= count;
    last = count;
  });
  const row = rows.get(label);
  row.path.setAttribute("d", path);
  row.trend.setAttribute("aria-label", first === null ? "no earlier releases" : `from ${whole(first)} to ${whole(last)}`);
}
