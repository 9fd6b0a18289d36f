/* Sparklines: fetched for the visible rows, and again when the server's history has grown. */

import { chosen } from "./pins.js";
import { rows } from "./rows.js";
import { ask } from "./server.js";
import { inWords, spark } from "./sparks.js";
import { changed, heard, steps, view } from "./state.js";

const TREND_MS = 2000, LONGEST_QUESTION = 8000, MOST_LABELS = 100;
export const trends = new Map();  // label -> its counts and their intervals, of visible rows and of the chart
export const request = { busy: false, at: 0, key: "", nonce: "" };
let end = Infinity;  // the last round to be drawn

export async function refreshTrends(force) {
  const { nonce } = view.shown.release;
  if (request.nonce !== nonce) forget(nonce);
  endAt(view.mode === "live" ? Infinity : view.shown.release.round);
  const key = heard.history.join(":");
  const wanted = [...new Set([...rows.keys(), ...chosen()])];
  const missing = wanted.some((label) => !trends.has(label));
  const isTooSoon = !force && Date.now() - request.at < TREND_MS;
  if (request.busy || !heard.connected || nonce !== heard.release.nonce || (key === request.key && !missing) || isTooSoon) return;
  request.busy = true;
  request.at = Date.now();
  try {
    for (const some of questions(wanted)) {
      const answer = await ask(`history?${some}`);
      if (!answer.ok) return;
      const found = await answer.json();
      if (request.nonce !== nonce) return;  // another epoch is shown by now
      Object.assign(steps, { rounds: found.rounds, ts: found.ts });
      for (const each of found.series) { trends.set(each.label, each); drawTrend(each.label); }
    }
    for (const label of trends.keys()) if (!wanted.includes(label)) trends.delete(label);
    request.key = key;
    changed(true);
  } catch { /* the connection is watched elsewhere */ } finally {
    request.busy = false;
  }
}

function forget(nonce) {
  trends.clear();
  request.key = "";
  request.nonce = nonce;
  Object.assign(steps, { rounds: [], ts: [] });
  for (const label of rows.keys()) drawTrend(label);
}

/* The past does not know what came later. */
function endAt(round) {
  if (round === end) return;
  end = round;
  for (const label of trends.keys()) drawTrend(label);
}

/* The labels as queries, none longer than servers take. */
export function questions(labels) {
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

export function drawTrend(label) {
  if (!rows.has(label)) return;
  const { rounds } = steps, counts = (trends.get(label)?.counts || []).filter((_, index) => rounds[index] <= end);
  const row = rows.get(label);
  row.path.setAttribute("d", spark(rounds, counts));
  row.trend.setAttribute("aria-label", inWords(counts));
}
