/* The table: which labels have rows, in which order, and on which scale.  At most MOST_ROWS, however many are released. */

import { say } from "./announcer.js";
import { $, put, visible } from "./dom.js";
import { rounded, whole } from "./format.js";
import { drawMeasure, measured } from "./measure.js";
import { MOST_PINS, isPinned, pinned as allPinned, toggle } from "./pins.js";
import { drawRow, newRow, rows } from "./rows.js";
import { silence } from "./silence.js";
import { sorted } from "./sorting.js";
import { NORMAL_95, ROWS_STEP, changed, isOfFamily, ranked, view } from "./state.js";
import { drawTrend, refreshTrends } from "./trends.js";
import { isWindowSilent } from "./windows.js";

const MOST_ROWS = 200;
let scale = 1, hovering = false;

export function drawRanking(force) {
  if (force || !hovering || !rows.size) order();  // nothing moves away under a pointer
  drawMeasure();
  const as = measured();
  drawScale(as);
  for (const [label, row] of rows) drawRow(label, row, isPinned(label), scale, as);
  $("table").hidden = rows.size === 0;
  $("empty").hidden = ranked().counts.length > 0 || rows.size > 0;
  put($("empty"), isWindowSilent() ? "Nothing was released lately." : silence(view.shown.release) || (view.shown.release.window ? "No label has reached the threshold lately." : view.shown.release.tests ? "No test has found a label yet." : "No label has reached the threshold yet."));
  put($("count-title"), as.column || (isOfWindow() ? "In window" : "Count"));
  $("table").dataset.round = (view.window ? ranked() : view.shown.release).round;
  $("table").classList.toggle("with-found", Boolean(view.shown.found));
  $("table").classList.toggle("without-threshold", Boolean(view.shown.release.tests));
  $("table").classList.toggle("with-totals", Boolean(view.shown.totals) && !view.window);
  refreshTrends(force);
}

/* Pinned labels first, then by count. */
function order() {
  const { names, rank } = ranked();
  const wanted = view.query.toLocaleLowerCase();
  const matches = (name) => isOfFamily(name) && (!wanted || name.toLocaleLowerCase().includes(wanted));
  const found = sorted(names.filter(matches));
  const byRank = (a, b) => (rank.get(a) ?? Infinity) - (rank.get(b) ?? Infinity) || (a < b ? -1 : 1);
  const pinned = allPinned().filter(matches).sort(byRank);
  const unpinned = found.filter((name) => !isPinned(name));
  const others = withFocus(unpinned.slice(0, view.limit));
  const labels = [...pinned, ...others];
  place(labels);
  $("table").style.setProperty("--longest", Math.max(0, ...labels.map((label) => label.length)));
  labels.forEach((label, index) => {
    rows.get(label).line.classList.toggle("last-pinned", index === pinned.length - 1 && others.length > 0);
  });
  tellHowMany(found.length, unpinned.length - others.length);
}

/* Who walks along the rows with the keyboard does not lose the place. */
function withFocus(labels) {
  const focused = document.activeElement;
  for (const [label, row] of rows) {
    if (row.pin === focused && focused.matches(":focus-visible") && !isPinned(label) && !labels.includes(label)) labels.push(label);
  }
  return labels;
}

function place(labels) {
  const keep = new Set(labels), focused = document.activeElement;
  for (const [label, row] of rows) if (!keep.has(label)) { row.line.remove(); rows.delete(label); }
  let next = $("rows").firstElementChild;
  for (const label of labels) {
    if (!rows.has(label)) { rows.set(label, newRow(label, togglePin)); drawTrend(label); }
    const { line } = rows.get(label);
    if (line === next) next = next.nextElementSibling;
    else $("rows").insertBefore(line, next);
  }
  if (focused && focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
}

function tellHowMany(found, left) {
  $("more").hidden = left <= 0 || view.limit >= MOST_ROWS;
  put($("more"), `Show ${Math.min(ROWS_STEP, left)} more`);
  $("matches").hidden = !view.query && !(left > 0 && view.limit >= MOST_ROWS);
  put($("matches"), view.query
    ? `${whole(found)} of ${whole(ranked().names.length)} released labels match. One that is missing is not a zero.`
    : `The ${MOST_ROWS} largest are shown; search for the others.`);
}

function drawScale(as) {
  const { counts, rank, sd = view.shown.release.sd } = ranked();
  const tau = isOfWindow() || view.shown.release.tests || view.shown.release.tau === null ? -1 : view.shown.release.tau;  // the threshold is one of counts since a beginning
  let largest = Math.max(1, tau);
  for (const label of rows.keys()) if (rank.has(label)) largest = Math.max(largest, counts[rank.get(label)]);
  largest += NORMAL_95 * sd;
  if (largest > scale || largest < 0.6 * scale) scale = rounded(1.06 * largest);  // stands still between, for calm
  $("table").style.setProperty("--tau-at", (tau / scale).toFixed(4));
  $("table").classList.toggle("of-window", isOfWindow());
  put($("axis-end"), as.count(scale));
}

const isOfWindow = () => Boolean(view.window || view.shown.release.window);

export function togglePin(label) {
  if (!toggle(label)) return say(`No more than ${MOST_PINS} labels can be pinned.`);
  say(`${visible(label)} ${isPinned(label) ? "pinned" : "no longer pinned"}.`);
  changed(true);
}

export function showMore() {
  view.limit = Math.min(MOST_ROWS, view.limit + ROWS_STEP);
  changed(true);
}

export function watchPointer() {
  $("rows").addEventListener("pointerenter", (event) => { hovering = event.pointerType === "mouse"; });
  $("rows").addEventListener("pointerleave", () => { hovering = false; });
}
