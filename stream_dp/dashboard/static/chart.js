/* The main chart: chosen labels over time, their 95% intervals as ribbons, read with the pointer or the arrow keys. */

import { chartNote } from "./comparison.js";
import { curves } from "./curves.js";
import { $, element, fill, isolated, put, style } from "./dom.js";
import { refreshEarlier } from "./earlier.js";
import { moment, rate, span, timeOf, whole } from "./format.js";
import { breaks, drawMarks } from "./marks.js";
import { charted } from "./measure.js";
import { MOST_CURVES, chosen } from "./pins.js";
import { asRates, lagOf } from "./rates.js";
import { view } from "./state.js";
import uPlot from "./vendor/uplot/uPlot.esm.js";
import { isWindowSilent } from "./windows.js";

const RIBBON = "38";  // how opaque, in hexadecimal
let plot = null, key = "", shown = null, place = null, zoom = null, tell = whole;

export const color = (number) => style(`--c${(number % MOST_CURVES) + 1}`);

export function drawChart() {
  const labels = chosen();
  shown = curves(labels);
  const per = shown.areTimes ? charted() : null;
  if (per) shown = asRates(shown, per.seconds);
  tell = per ? rate : whole;
  $("chart").hidden = labels.length === 0;
  if (!labels.length) return;
  refreshEarlier(labels);
  const data = [shown.x, ...shown.series.flatMap(({ counts, low, high }) => [counts, high, low])];
  const next = JSON.stringify([labels, shown.areTimes, per?.name, document.documentElement.dataset.theme]);
  if (next === key) plot.setData(data);
  else {
    plot?.destroy();
    key = next;
    zoom = null;
    plot = new uPlot(options(labels), data, $("plot"));
    drawLegend(labels);
  }
  const range = shown.areTimes ? `${moment(shown.times[0])} to ${moment(shown.times.at(-1))}` : `rounds ${whole(shown.x[0])} to ${whole(shown.x.at(-1))}`;
  put($("chart-range"), `${shown.areTimes ? "Times are UTC" : "By round"} · ${range}${shown.begins.length ? ". A dashed line is where an epoch begins; its counts start anew" : ""}${per ? `. Each point is of about the ${span(lagOf(shown))} before it` : ""}`);
  put($("chart-title"), per ? `Over time, ${per.name}` : "Over time");
  fill($("chart-note"), chartNote());
  $("plot").setAttribute("aria-label", `${per ? `How many ${per.name}` : "Counts"} of ${labels.join(", ")} over time, ${range}`);
  if (place === null) $("plot").setAttribute("aria-valuetext", summary());
  $("plot").setAttribute("aria-valuemax", shown.x.length - 1);
  $("plot").setAttribute("aria-valuenow", place ?? shown.x.length - 1);
}

function options(labels) {
  const axis = { stroke: () => style("--quiet"), grid: { stroke: () => style("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  return {
    ...size(), legend: { show: false }, tzDate: (time) => uPlot.tzDate(new Date(1000 * time), "Etc/UTC"),
    cursor: { y: false, points: { size: 7 }, drag: { x: true, y: false }, bind: { dblclick: zoomOut } },
    scales: { x: { time: shown.areTimes, range: reach }, y: { range: (_, low, high) => uPlot.rangeNum(Math.min(0, low ?? 0), high ?? 1, 0.08, true) } },
    axes: [{ ...axis, size: 30, space: 84, values: (_, ticks, __, ___, step) => ticks.map((tick) => (shown.areTimes ? timeOf(tick, step) : whole(tick))) }, { ...axis, size: 64, values: (_, ticks) => ticks.map(tell) }],
    series: [{}, ...labels.flatMap((label, number) => [
      { label, stroke: () => color(number), width: 2, points: { show: shown.x.length < 3, size: 6 }, gaps: pauses }, edge(), edge(),
    ])],
    bands: labels.map((_, number) => ({ series: [3 * number + 2, 3 * number + 3], fill: () => color(number) + RIBBON })),
    hooks: { setCursor: [read], setSelect: [zoomIn], drawClear: [(of) => drawMarks(of, shown)] },
  };
}

/* From where to where: what was dragged, else the window that is picked, else all. */
function reach() {
  const first = shown.x[0], last = shown.x.at(-1);
  if (zoom) return zoom;
  const since = view.window && shown.areTimes && view.recent?.since && !isWindowSilent() ? Date.parse(view.recent.since) / 1000 : first;
  return since > first && since < last ? [since, last] : last > first ? [first, last] : [first - 1, last + 1];
}

function zoomIn({ select, posToVal }) {
  if (select.width > 0) zoom = [posToVal(select.left, "x"), posToVal(select.left + select.width, "x")];
}

function zoomOut(_, __, then) {
  return (event) => {
    zoom = null;
    then(event);
  };
}

const pauses = (of, _, __, ___, found) => breaks(of, shown, found);
const edge = () => ({ stroke: "transparent", width: 0, points: { show: false }, gaps: pauses });

function size() {
  return { width: Math.max(200, $("plot").clientWidth), height: Math.max(160, $("plot").clientHeight) };
}

function drawLegend(labels) {
  $("legend").replaceChildren(...labels.map((label, number) => {
    const item = element("li"), swatch = element("i", "", `swatch c${(number % MOST_CURVES) + 1}`);
    swatch.setAttribute("aria-hidden", "true");
    item.append(swatch, isolated(label));
    return item;
  }));
}

/* What stood there at the cursor's place. */
function read() {
  place = plot ? plot.cursor.idx ?? null : null;
  $("tip").hidden = place === null;
  if (place === null) return;
  $("tip").replaceChildren(element("p", heading(), "quiet"), ...shown.series.map(({ label, counts, low, high }, number) => {
    const line = element("p"), swatch = element("i", "", `swatch c${(number % MOST_CURVES) + 1}`);
    line.append(swatch, isolated(label), element("b", counts[place] === null ? "–" : tell(counts[place])),
      element("small", counts[place] === null ? "not released" : `${tell(low[place])} – ${tell(high[place])}`));
    return line;
  }));
  const left = plot.valToPos(shown.x[place], "x") + plot.bbox.left / devicePixelRatio, tip = $("tip").offsetWidth;
  const isRight = left + tip + 16 > $("plot").clientWidth;
  $("tip").style.transform = `translateX(${Math.max(0, isRight ? left - tip - 12 : left + 12)}px)`;
  $("plot").setAttribute("aria-valuetext", summary());
  $("plot").setAttribute("aria-valuenow", place);
}

function heading() {
  const at = place ?? shown.x.length - 1;
  return `${shown.areTimes ? `${moment(shown.times[at])} · ` : ""}round ${whole(shown.rounds[at])}${shown.begins.length ? ` of epoch ${shown.epoch[at]}` : ""}`;
}

function summary() {
  const at = place ?? shown.x.length - 1;
  return `${heading()}: ${shown.series.map(({ label, counts }) => `${label} ${counts[at] === null ? "not released" : tell(counts[at])}`).join(", ")}`;
}

function walk(event) {
  const last = shown.x.length - 1, from = place ?? last;
  const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last, PageUp: from - 10, PageDown: from + 10 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  plot.setCursor({ left: plot.valToPos(shown.x[Math.max(0, Math.min(last, to))], "x"), top: 0 });
}

function redraw() {
  plot?.redraw(false);
}

export function startChart() {
  $("plot").addEventListener("keydown", walk);
  $("plot").addEventListener("blur", () => plot?.setCursor({ left: -10, top: -10 }));
  new ResizeObserver(() => plot?.setSize(size())).observe($("plot"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}

export function drawn() {
  return { canvas: plot.ctx.canvas, labels: shown.series.map(({ label }) => label) };
}
