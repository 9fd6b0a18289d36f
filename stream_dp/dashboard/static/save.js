/* What is on show as a file: a table as CSV or JSON, the chart as a picture, and the link that shows it again. */

import { say } from "./announcer.js";
import { $ } from "./dom.js";
import { picture } from "./picture.js";
import { cells, ranked, view } from "./state.js";

const FORMULA = /^[=+\-@\t\r]/;  // a spreadsheet would run what begins so

export function startSaving() {
  for (const button of $("save").querySelectorAll("button")) {
    button.addEventListener("click", () => {
      if (view.shown) WAYS[button.dataset.way]();
      $("save").open = false;
      $("save").querySelector("summary").focus();
    });
  }
}

const WAYS = {
  csv: () => download(new Blob([csv()], { type: "text/csv" }), "csv"),
  json: () => download(new Blob([JSON.stringify(content(), null, 1)], { type: "application/json" }), "json"),
  png: () => picture().toBlob((blob) => download(blob, "png")),
  link: async () => {
    const isCopied = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
    if (isCopied) say("The link is copied.");
    else prompt("This page may not write to the clipboard. The link:", location.href);  // as one that came without TLS
  },
};

/* The ranking on show, whole: the release, or the window behind it. */
export function content() {
  const { names, counts, low, high } = ranked(), { release, totals, since, guarantee, rank } = view.shown;
  const about = view.window ? { window: view.window, since_round: view.recent?.since_round } : ofRelease(view.shown.release);
  const rows = names.map((label, place) => ({
    rank: place + 1, label, count: counts[place], low: low[place], high: high[place],
    ...(totals && !view.window ? { total: totals[rank.get(label)], since: since[rank.get(label)] } : {}),
  }));
  const { stream, epoch, round, ts, sd, tau, epsilon, delta } = release, { units, over_cap, units_sd } = cells();
  return { stream, epoch, round, ts, ...about, sd: view.window ? ranked().sd : sd, tau, units, over_cap, units_sd, epsilon, delta, guarantee, counted: release.counts_what, rows };
}

/* Which rounds a release counts, if not all. */
function ofRelease({ window, round }) {
  return window ? { window: String(window), since_round: Math.max(0, round - window) } : {};
}

export function csv() {
  const { rows, counted: what } = content(), names = Object.keys(rows[0] || { rank: 0, label: 0, count: 0, low: 0, high: 0 });
  return [[...names, "counted"], ...rows.map((row) => [...names.map((name) => row[name]), what])].map((line) => line.map(quoted).join(",") + "\r\n").join("");
}

function quoted(value) {
  if (typeof value !== "string") return String(value ?? "");
  const text = FORMULA.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function download(blob, ending) {
  const { stream, epoch, round } = view.shown.release, link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${stream}-epoch-${epoch}-round-${round}${view.window ? `-window-${view.window}` : ""}${view.family ? `-${view.family}` : ""}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  say(`Saved ${link.download}.`);
}
