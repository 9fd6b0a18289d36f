/* Releases of the past, and the way back to the newest one. */

import { say } from "./announcer.js";
import { $, put } from "./dom.js";
import { whole } from "./format.js";
import { API, changed, show, view } from "./state.js";

export const question = { wanted: "", busy: false, problem: "" };

export function setMode(next) {
  view.mode = next;
  question.problem = "";
  $("pause").setAttribute("aria-pressed", String(view.mode === "paused"));
  put($("pause"), view.mode === "paused" ? "Resume" : "Pause");
  changed(true);
}

/* Ask for a release of the past: the newest at or before a round, or of a moment.  Of many questions the last one counts. */
export async function lookBack(wanted) {
  question.wanted = wanted;
  if (view.mode !== "past") setMode("past");  // from now on the slider is the viewer's
  if (question.busy) return;
  question.busy = true;
  for (let asked = ""; asked !== question.wanted && view.mode === "past";) {
    asked = question.wanted;
    try {
      const answer = await fetch(`${API}/release?${asked}`);
      const found = await answer.json();
      if (asked !== question.wanted || view.mode !== "past") continue;
      if (answer.ok) show(found, found.labels, found);
      question.problem = answer.ok ? "" : `There is nothing to show: ${found.error}.`;
    } catch {
      question.problem = "That release cannot be read now.";
    }
    changed(true);
    const { release } = view.shown;
    say(question.problem || `Round ${whole(release.round)} of epoch ${release.epoch} is shown.`);
  }
  question.busy = false;
  changed();
}

export function lookBackToMoment() {
  const moment = $("moment").value;  // empty while it is being typed
  if (moment) lookBack(`at=${moment}Z`);
}

export function askedRound() {
  return view.mode === "past" && question.wanted.startsWith("round=") ? Number(question.wanted.slice(6)) : null;
}
