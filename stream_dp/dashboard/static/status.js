/* Whether what is shown is live, and what to know about it if it is not. */

import { $, put } from "./dom.js";
import { ago, rate, when, whole } from "./format.js";
import { askedRound, question } from "./past.js";
import { heard, view } from "./state.js";
import { stateOf } from "./states.js";

export function drawStatus() {
  const [kind, text, notice] = status();
  put($("badge"), text);
  $("badge").dataset.kind = kind;
  if (heard.stream) nameStream(heard.stream);
  put($("notice-text"), notice || "");
  $("notice").hidden = !notice;
  $("live").hidden = view.mode === "live";
  drawClock();
  put($("rate"), heard.rate == null || !heard.connected ? "–" : rate(heard.rate));
}

function nameStream(name) {
  put($("stream"), name);
  document.title = `${name} · stream-dp`;
}

/* The newest release was published some time ago; any other one has the time that stands in it. */
function drawClock() {
  const isNewest = view.mode === "live", release = view.shown && view.shown.release;
  put($("age-title"), isNewest ? "Last release" : "This release");
  if (!release) return;
  const published = new Date(1000 * Math.floor((heard.at / 1000) - heard.age)).toISOString();
  put($("age"), isNewest ? ago(age()) : release.ts.slice(11, 19));
  put($("ts"), isNewest ? `at ${published.slice(11, 19)} UTC` : `UTC on ${release.ts.slice(0, 10)}`);
  $("ts").title = when(isNewest ? published : release.ts);
}

/* Seconds since the newest release was published. */
export function age() {
  return heard.age + (Date.now() - heard.at) / 1000;
}

function status() {
  const release = view.shown && view.shown.release;
  if (!heard.connected) return ["warn", heard.at ? "Reconnecting" : "Connecting",
    heard.at && "The server does not answer. What you see is the last release that came; the page goes on by itself."];
  if (view.mode === "past") return ["past", "History", question.problem || `${notReleased(release)}You see round ${
    whole(release.round)} of epoch ${release.epoch} as it was released, ${when(release.ts)}.`];
  if (view.mode === "paused") return ["past", "Paused", `You see round ${whole(release.round)}. The stream goes on meanwhile.`];
  return stateOf({ ...heard, release, age: age() });
}

/* Not every round need be released: the answer for one that was not is an earlier release. */
function notReleased(release) {
  const asked = askedRound();
  return asked === null || question.busy || asked === release.round ? "" : `Round ${whole(asked)} was not released. `;
}
