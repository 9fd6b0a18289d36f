/* Releases of the past, and the way back to the newest one. */

import { address, asked } from "./address.js";
import { say } from "./announcer.js";
import { $, put } from "./dom.js";
import { whole } from "./format.js";
import { ask } from "./server.js";
import { changed, show, view } from "./state.js";

const WHOLE = /^[1-9][0-9]{0,17}$/;
export const question = { wanted: "", busy: false, problem: "" };

export function setMode(next) {
  view.mode = next;
  question.problem = "";
  if (next !== "past") tellPlace();
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
  for (let sent = ""; sent !== question.wanted && view.mode === "past";) {
    sent = question.wanted;
    try {
      const answer = await ask(`release?${sent}`);
      const found = await answer.json();
      if (sent !== question.wanted || view.mode !== "past") continue;
      if (answer.ok) {
        show(found, found.labels, found);
        tellPlace(found.round, found.epoch);
      }
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
  const round = new URLSearchParams(question.wanted).get("round");
  return view.mode === "past" && round ? Number(round) : null;
}

function tellPlace(round, epoch) {
  address("round", round ? [round] : []);
  address("epoch", epoch ? [epoch] : []);
}

/* What the address named, once there is something to look back from. */
export function restorePlace() {
  const [round] = asked("round"), [epoch] = asked("epoch");
  if (WHOLE.test(round)) lookBack(`round=${round}${WHOLE.test(epoch) ? `&epoch=${epoch}` : ""}`);
}
