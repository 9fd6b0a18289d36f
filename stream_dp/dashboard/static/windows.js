/* What happened lately: the ranking by a window, fetched anew while the stream goes on. */

import { address, asked } from "./address.js";
import { say } from "./announcer.js";
import { $, put } from "./dom.js";
import { when, whole } from "./format.js";
import { ask } from "./server.js";
import { inWords, secondsOf } from "./spans.js";
import { changed, heard, ranked, steps, view } from "./state.js";

const LOOK_MS = 1000, LONGEST_PAUSE_MS = 10000, SHARE_OF_TIME = 5;  // a large answer is asked for the less often
const SILENT_LOOK_MS = 5000, SHARE_OF_SPAN = 60;  // a window by time ends now, also while nothing is released
const SPAN = /^[1-9][0-9]{0,8}[smhd]?$/;
const UNPICKED = [["1d", 86400], ["1h", 3600], ["5m", 300], ["1m", 60]], LOOK_UNPICKED_MS = 5000;
export const request = { busy: false, at: 0, took: 0, key: "", span: "", failed: false };

/* The window that the address names is picked at first, also one that the picker does not have. */
export function restoreWindow() {
  const named = asked("window")[0] || "";
  if (!SPAN.test(named)) return;
  if (![...$("window").options].some((option) => option.value === named)) $("window").add(new Option(inWords(named), named));
  $("window").value = named;
  view.picked = view.window = named;
}

export function pickWindow() {
  view.picked = view.window = $("window").value;
  view.recent = null;
  Object.assign(request, { key: "", at: 0, failed: false });
  address("window", view.window ? [view.window] : []);
  changed(true);
}

/* The window that is looked for: the picked one, or the longest of which the stream holds two, for what moves. */
function wanted() {
  if (view.shown.release.window) return "";  // every release is a window already
  if (view.window || !steps.ts.length) return view.window;
  const age = (Date.parse(view.shown.release.ts) - Date.parse(steps.ts[0])) / 1000;
  return UNPICKED.find(([, seconds]) => age >= 2 * seconds)?.[0] || "";
}

/* How long after one question the next one may follow.  One slow answer, of a busy machine, holds up no other for long. */
function pause() {
  return Math.max(view.window ? LOOK_MS : LOOK_UNPICKED_MS, Math.min(LONGEST_PAUSE_MS, SHARE_OF_TIME * request.took));
}

/* Changes as often as a window has to be looked for again if nothing was released. */
function moment(span) {
  const length = 1000 * secondsOf(span);
  return length && Math.floor(Date.now() / Math.max(SILENT_LOOK_MS, length / SHARE_OF_SPAN));
}

/* Ask for the window behind the release on show, unless it is there or was asked for just now. */
export async function refreshWindow() {
  const { release } = view.shown, span = wanted(), isLive = view.mode === "live";
  const key = `${span} ${release.nonce} ${release.round} ${isLive ? moment(span) : ""}`;
  if (!span) return;
  const isAgain = request.failed || (isLive && request.span === span);
  if (request.busy || key === request.key || (isAgain && Date.now() - request.at < pause()) || !heard.connected) return;
  request.busy = true;
  request.at = Date.now();
  Object.assign(request, { key, span });
  try {
    const answer = await ask(`window?span=${span}${isLive ? "" : `&round=${release.round}&epoch=${release.epoch}`}`);
    const found = await answer.json();
    request.failed = !answer.ok;
    if (span === wanted()) take(answer.ok ? found : { problem: found.error });
    if (!answer.ok || found.round < release.round) request.key = "";  // ask again
  } catch {
    request.failed = true;  // the connection is watched elsewhere
    request.key = "";
  } finally {
    request.busy = false;
    request.took = Date.now() - request.at;
  }
  changed();
}

function take(found) {
  const first = !view.recent;
  if (found.problem) {
    view.recent = { problem: found.problem };
    return;
  }
  const signs = new Map((found.moves || []).map((each) => [each.label, Math.sign(each.change)]));
  view.recent = {
    ...found, names: found.labels, signs, starts: new Map(found.new.map((each) => [each.label, each])), rank: new Map(found.labels.map((label, index) => [label, index])),
    low: found.low.map((end) => Math.max(0, Math.floor(end))), high: found.high.map((end) => (end === null ? Infinity : Math.max(0, Math.ceil(end)))),
  };
  if (first && view.window) say(reach(view.recent));
}

/* What the ranking is of, in words; releases that are windows themselves leave nothing to pick or to compare. */
export function drawWindow() {
  const { release } = view.shown, isWindow = Boolean(release.window);
  $("picker").hidden = $("movers").hidden = $("trend-title").disabled = isWindow;
  $("window-note").hidden = !view.window && !isWindow;
  if (isWindow) return put($("window-note"), covered(release));
  if (!view.window) return;
  const { recent } = view;
  if (!recent) return put($("window-note"), "Looking for where the window begins …");
  if (recent.problem) return put($("window-note"), `There is no window to show: ${recent.problem}.`);
  const others = recent.new.length ? ` ${recent.new.length === 1 ? "1 label was" : `${whole(recent.new.length)} labels were`} not shown when it began: counted at least so often, as far as is known.` : "";
  const movers = recent.signs.size ? " ▲ and ▼: rose or fell since the window before by more than noise and chance explain." : "";
  if (isSilent(recent)) return put($("window-note"), reach(recent));
  put($("window-note"), `${reach(recent)} Noise sd ${recent.sd.toFixed(1)}.${others}${movers}`);
}

function covered({ round, window }) {
  return round < window ? `Rounds 1 to ${whole(round)}: the epoch is younger than its window of ${whole(window)} rounds.`
    : `Rounds ${whole(round - window + 1)} to ${whole(round)}: every count is of the last ${whole(window)} rounds.`;
}

/* Whether nothing was released within the window that is shown. */
export function isWindowSilent() {
  const { recent } = view;
  return Boolean(view.window) && recent && !recent.problem && isSilent(recent);
}

function isSilent(recent) {
  return recent.since_round === recent.round && recent.since_epoch === recent.epoch;
}

function reach(recent) {
  if (isSilent(recent)) return `Nothing was released in the ${inWords(recent.window)}: no event came, or the worker stands still. The last release is that ${when(recent.ts)}.`;
  if (!recent.since) return `Rounds 1 to ${whole(recent.round)}: the epoch is younger than this window.`;
  const begins = recent.since_epoch === recent.epoch ? `Rounds ${whole(recent.since_round + 1)}`
    : `From after round ${whole(recent.since_round)} of epoch ${recent.since_epoch}`;
  const short = recent.complete ? "" : ", as far back as releases are kept";
  return `${begins} to ${whole(recent.round)}, since ${when(recent.since)}${short}.`;
}

/* Of a label that was not shown when the window began: from when on it is known how often it occurred. */
export function start(label) {
  return ranked().starts?.get(label);
}

/* What became of a label since the window before: 1, -1, or 0 where noise may explain it. */
export function moved(label) {
  return ranked().signs?.get(label) || 0;
}
