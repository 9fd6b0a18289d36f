/* The rows of the table: made once for each label that is visible, and filled anew with every release. */

import { isFresh } from "./arrivals.js";
import { drawing, element, isolated, put, visible } from "./dom.js";
import { whole } from "./format.js";
import { places } from "./places.js";
import { sparkline } from "./sparks.js";
import { ranked, view } from "./state.js";
import { isWindowSilent, moved, start } from "./windows.js";

export const rows = new Map();  // label -> the elements of its row

export function newRow(label, togglePin) {
  const line = element("tr"), row = { line };
  line.setAttribute("role", "row");
  const cell = (name, ...children) => {
    const made = element("td", "", name);
    made.setAttribute("role", "cell");
    made.append(...children);
    line.append(made);
    return made;
  };
  row.rank = element("span", "", "place");
  row.places = element("small");
  cell("rank", row.rank, row.places);
  row.tag = element("span", "new", "tag");
  row.found = element("small", "", "found");
  cell("name", isolated(label), row.tag, row.found).title = visible(label);
  row.track = element("span", "", "track");
  for (const name of ["spread", "solid", "tick"]) row.track.append(element("i", "", name));
  cell("bar", row.track).setAttribute("aria-hidden", "true");
  row.count = element("span");
  row.move = element("span", "", "move");
  cell("count", row.move, row.count);
  row.interval = cell("interval");
  row.total = cell("total");
  row.trend = sparkline();
  row.path = row.trend.firstChild;
  cell("trend", row.trend);
  row.pin = pinButton(label, togglePin);
  cell("pin", row.pin);
  return row;
}

function pinButton(label, togglePin) {
  const button = element("button");
  button.type = "button";
  button.setAttribute("aria-label", `Pin ${label}`);
  const icon = button.appendChild(drawing("0 0 16 16"));
  icon.setAttribute("aria-hidden", "true");
  icon.firstChild.setAttribute("d", "M5.5 2h5l-.6 4.6 2.1 2.4H4l2.1-2.4zM8 9v5");
  button.addEventListener("click", () => togglePin(label));
  return button;
}

/* `as` writes counts: see `measured`. */
export function drawRow(label, row, isPinned, scale, as) {
  const { counts, low, high, rank } = ranked();
  const index = rank.get(label), fresh = isFresh(label), since = start(label);
  row.line.classList.toggle("absent", index === undefined);
  row.line.classList.toggle("fresh", fresh);
  row.tag.hidden = !fresh;
  row.pin.setAttribute("aria-pressed", String(isPinned));
  put(row.rank, index === undefined ? "–" : whole(index + 1));
  drawPlaces(row.places, index);
  put(row.found, foundBy(label));
  put(row.count, index === undefined ? "–" : since ? `≥${as.low(low[index])}` : as.count(counts[index]));
  drawMove(row.move, index === undefined ? 0 : moved(label));
  put(row.interval, index === undefined ? absence() : since ? known(since) : `${as.low(low[index])} – ${as.high(high[index])}`);
  drawTotal(label, row.total);
  if (index === undefined) return;
  const style = row.track.style;
  style.setProperty("--low", (low[index] / scale).toFixed(4));
  style.setProperty("--high", Math.min(1, high[index] / scale).toFixed(4));
  style.setProperty("--at", Math.max(0, counts[index] / scale).toFixed(4));
}

function drawMove(mark, sign) {
  put(mark, sign ? (sign > 0 ? "▲" : "▼") : "");
  mark.dataset.sign = sign;
  if (sign) mark.setAttribute("aria-label", sign > 0 ? "rising" : "falling");
  else mark.removeAttribute("aria-label");
  mark.setAttribute("role", sign ? "img" : "none");
}

/* When a label was found, where tests look for new ones. */
function foundBy(label) {
  const { found, rank, release } = view.shown, test = found?.[rank.get(label)];
  if (test === undefined) return "";
  return test === 0 ? "known" : `found in round ${whole(release.tests[test].round)}`;
}

/* Which ranks the true counts leave possible: ties are those whose intervals overlap. */
function drawPlaces(mark, index) {
  const found = index === undefined ? null : places(ranked(), index);
  put(mark, found && found[0] < found[1] ? `${whole(found[0])}–${whole(found[1])}` : "");
  mark.title = mark.textContent && "The intervals of these ranks overlap: nobody can tell their order";
}

function absence() {
  if (isWindowSilent()) return "";
  return view.shown.release.tests ? "not found" : "below threshold";
}

/* From when on it is known how often a label occurred, that was not shown when the window began. */
function known({ since, since_round: round }) {
  if (since) return `at least, since ${since.slice(11, 16)}`;
  return round ? `at least, since round ${whole(round)}` : "at least";
}

/* Of the release, over all epochs that its own carries on; a window has none. */
function drawTotal(label, cell) {
  const { release, totals, margins, since, rank } = view.shown;
  const index = totals && !view.window ? rank.get(label) : undefined;
  put(cell, index === undefined ? "" : `${whole(totals[index])} ± ${whole(margins[index])}`);
  cell.title = index !== undefined && since[index] > 0 && since[index] <= release.epoch ? `since epoch ${since[index]}` : "";
}
