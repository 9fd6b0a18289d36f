/* What every release says of itself: its round, its noise and its guarantee. */

import { $, put } from "./dom.js";
import { counted } from "./counted.js";
import { small, whole } from "./format.js";
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
  put($("sd"), `sd ${release.sd.toFixed(1)} in every count`);
  put($("tau"), release.tau === null ? "–" : whole(release.tau));
  put($("tau-note"), release.next_test !== null ? `new labels are looked for in round ${whole(release.next_test)}` : release.shown === "kept" ? "to be shown, and kept" : release.window ? "of a block of rounds, to be shown for a window" : "least count released");
  put($("released"), whole(counts.length));
  put($("epsilon"), small(release.epsilon));
  put($("delta"), small(release.delta));
  put($("rho"), small(release.rho));
  put($("protects"), protects);
  put($("guarantee"), guarantee);
  put($("counted"), counted(release));
  put($("unit"), `one ${release.unit}`);
  put($("mechanism"), release.mechanism);
  drawSlider(release);
}

function drawSlider(release) {
  $("travel").hidden = false;
  $("slider").max = heard.release.round;
  const asked = askedRound();
  if (asked === null) $("slider").value = release.round;
  const isAnswered = asked === null || !(question.busy || question.problem);
  put($("slider-value"), `round ${whole(isAnswered ? release.round : asked)}`);
}
