/* By which column the table is sorted: as the viewer clicked, and as the address says. */

import { address, asked } from "./address.js";
import { say } from "./announcer.js";
import { $ } from "./dom.js";
import { changed, ranked, view } from "./state.js";

const FALLING_FIRST = ["count", "interval", "total", "trend"];
const sort = { by: "count", falls: true };

/* What a label is sorted by, in each column. */
const KEYS = {
  rank: (label) => -ranked().rank.get(label),
  label: (label) => label.toLocaleLowerCase(),
  count: (label) => -ranked().rank.get(label),
  interval: (label, at = ranked().rank.get(label)) => ranked().high[at] - ranked().low[at],
  total: (label) => view.shown.totals?.[view.shown.rank.get(label)] ?? -1,
  trend: (label) => share(label),
};

/* How much of a label's count came lately, as far as that is known. */
function share(label) {
  const { recent, shown } = view, at = shown.release.window ? undefined : recent?.rank?.get(label);
  return at === undefined ? -1 : recent.counts[at] / Math.max(1, shown.counts[shown.rank.get(label)] ?? 1);
}

/* Labels that come in the order of their counts, in the order that is asked for. */
export function sorted(labels) {
  if (sort.by === "count" && sort.falls) return labels;
  const key = KEYS[sort.by], sign = sort.falls ? -1 : 1;
  return labels.map((label) => [key(label), label]).toSorted(([a], [b]) => (a < b ? -sign : a > b ? sign : 0)).map(([, label]) => label);
}

export function restoreSort() {
  const by = (asked("sort")[0] || "").replace("-", "");
  if (Object.hasOwn(KEYS, by)) Object.assign(sort, { by, falls: asked("sort")[0].startsWith("-") });
  for (const button of $("table").querySelectorAll("thead button")) button.addEventListener("click", () => pick(button.dataset.by));
  tell();
}

function pick(by) {
  Object.assign(sort, { by, falls: sort.by === by ? !sort.falls : FALLING_FIRST.includes(by) });
  tell();
  say(`Sorted by ${by}, ${sort.falls ? "falling" : "rising"}.`);
  changed(true);
}

function tell() {
  const isUsual = sort.by === "count" && sort.falls;
  address("sort", isUsual ? [] : [(sort.falls ? "-" : "") + sort.by]);
  for (const button of $("table").querySelectorAll("thead button")) {
    const heading = button.closest("th");
    if (button.dataset.by === sort.by) heading.setAttribute("aria-sort", sort.falls ? "descending" : "ascending");
    else heading.removeAttribute("aria-sort");
  }
}
