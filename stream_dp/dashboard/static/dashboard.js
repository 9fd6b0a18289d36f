/* The page of the dashboard: what is drawn when, and what each control does. */

import { announce } from "./announcer.js";
import { drawArrivals } from "./arrivals.js";
import { drawChart, startChart } from "./chart.js";
import { connect, reconnectIfSilent } from "./connection.js";
import { $ } from "./dom.js";
import { drawFacts } from "./facts.js";
import { drawFamilies, pickFamily, restoreFamily } from "./families.js";
import { pickMeasure, restoreMeasure } from "./measure.js";
import { drawMovers } from "./movers.js";
import { lookBack, lookBackToMoment, restorePlace, setMode } from "./past.js";
import { drawRanking, showMore, togglePin, watchPointer } from "./ranking.js";
import { startSaving } from "./save.js";
import { tellPins } from "./pins.js";
import { onKey, search } from "./search.js";
import { restoreSort } from "./sorting.js";
import { heard, show, view, whenChanged } from "./state.js";
import { drawStatus } from "./status.js";
import { nextTheme, restoreTheme } from "./theme.js";
import { drawWindow, pickWindow, refreshWindow, restoreWindow } from "./windows.js";

const TABLE_MS = 400, LOOK_MS = 500;
let drawing = false, restored = false, tableAt = 0;

/* Once per animation frame at most, so a hidden tab draws nothing. */
function schedule() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    draw(false);
  });
}

function draw(force) {
  const isShown = view.shown && view.shown.release === heard.release && view.shown.guarantee === heard.guarantee;
  if (view.mode === "live" && heard.release && !isShown) show(heard.release, heard.ids.map((id) => heard.names[id]), heard);
  drawStatus();
  if (!view.shown) return;
  if (!restored) {
    restored = true;
    restorePlace();
  }
  drawFacts();
  drawArrivals();
  drawFamilies();
  drawWindow();
  refreshWindow();
  const now = performance.now();
  if (force || now - tableAt >= TABLE_MS) {  // slower than the facts above: order and numbers are of one release
    tableAt = now;
    drawRanking(force);
    drawChart();
    drawMovers(togglePin);
  }
  announce();
}

whenChanged((atOnce) => (atOnce ? draw(true) : schedule()));
restoreTheme();
restoreWindow();
restoreMeasure();
restoreFamily();
tellPins();
startChart();
restoreSort();
startSaving();
$("window").addEventListener("change", pickWindow);
$("measure").addEventListener("change", pickMeasure);
$("family").addEventListener("change", pickFamily);
$("theme").addEventListener("click", nextTheme);
$("pause").addEventListener("click", () => view.shown && setMode(view.mode === "live" ? "paused" : "live"));
$("live").addEventListener("click", () => {
  setMode("live");
  $("pause").focus();
});
$("more").addEventListener("click", showMore);
$("search").addEventListener("input", search);
$("slider").addEventListener("input", () => lookBack(`round=${$("slider").value}`));
$("moment").addEventListener("change", lookBackToMoment);
watchPointer();
document.addEventListener("keydown", onKey);
setInterval(() => {
  reconnectIfSilent();
  schedule();
}, LOOK_MS);
connect();
