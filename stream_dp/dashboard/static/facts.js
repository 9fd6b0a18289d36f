/* What every release says of itself: its round, its noise and its guarantee. */

import { $, put } from "./dom.js";
import { small, span, whole } from "./format.js";
import { askedRound, question } from "./past.js";
import { NORMAL_95, heard, view } from "./state.js";

export function drawFacts() {
  const { release, counts, protects, guarantee } = view.shown;
  put($("about"), `${release.window ? `Private counts of the last ${whole(release.window)} rounds` : "Private running histogram"} · epoch ${release.epoch}`);
  put($("round"), whole(release.round));
  $("of-horizon").hidden = $("progress").hidden = release.horizon === null;
  put($("horizon"), whole(release.horizon));
  $("progress").value = release.horizon === null ? 0 : release.round / release.horizon;
  put($("margin"), `± ${whole(Math.ceil(NORMAL_95 * release.sd))}`);
  put($("sd"), release.tests ? `at most, sd ${release.sd.toFixed(1)}` : `sd ${release.sd.toFixed(1)} in every count`);
  drawThreshold(release);
  put($("released"), whole(counts.length));
  put($("epsilon"), small(release.epsilon));
  put($("delta"), small(release.delta));
  put($("rho"), small(release.rho));
  put($("protects"), protects);
  put($("guarantee"), guarantee);
  put($("counted"), release.counts_what);
  put($("unit"), `one ${release.unit}`);
  put($("mechanism"), release.mechanism);
  drawSlider(release);
}

/* The least count that is shown; where tests look for new labels, when the next one does. */
function drawThreshold(release) {
  const { tau, tests, next_test: next } = release;
  put($("tau-title"), tests ? "Next test" : "Threshold");
  put($("tau"), tests ? (next === null ? "none" : `round ${whole(next)}`) : whole(tau));
  put($("tau-note"), tests ? (next === null ? "in this epoch: no label will be added" : `${due(next - release.round)}new labels are looked for`)
    : release.shown === "kept" ? "to be shown, and kept" : release.window ? "of a block of rounds, to be shown for a window" : "least count released");
  put($("no-new"), `No label has ${tests ? "been found by a test" : "passed the threshold for the first time"} since this server began to watch.`);
}

/* How long so many rounds take, at the rate of the last seconds. */
function due(rounds) {
  return view.mode === "live" && heard.rate > 0 ? `in about ${span(Math.max(1, rounds / heard.rate))}: ` : "";
}

function drawSlider(release) {
  $("travel").hidden = false;
  $("slider").max = heard.release.round;
  const asked = askedRound();
  if (asked === null) $("slider").value = release.round;
  const isAnswered = asked === null || !(question.busy || question.problem);
  put($("slider-value"), `round ${whole(isAnswered ? release.round : asked)}`);
}
