/* The results of one-shot jobs. */

import { $, element, isolated, quiet } from "./dom.js";
import { small, when, whole } from "./format.js";
import { NORMAL_95 } from "./state.js";

export function drawResults(results) {
  $("results").hidden = results.length === 0;
  $("result-cards").replaceChildren(...results.map(card));
}

function card(result) {
  const made = element("article", "", "card");
  const costs = Object.entries(result.cost).map(([name, value]) => `${name} ${small(value)}`);
  const about = [result.ts && when(result.ts), ...costs].filter(Boolean).join(" · ");
  made.append(element("h3", result.title), quiet(about), labels(result));
  const more = result.released - result.labels.length;
  if (more > 0) made.append(quiet(`and ${whole(more)} more`));
  for (const note of result.notes) made.append(quiet(note));
  if (result.sd !== null && result.counts) {
    made.append(quiet(`Noise of every count, 95%: ± ${whole(Math.ceil(NORMAL_95 * result.sd))}`));
  }
  if (result.guarantee) made.append(quiet(result.guarantee));
  return made;
}

function labels(result) {
  const list = element("ol");
  list.tabIndex = 0;
  list.setAttribute("aria-label", `Labels of ${result.title}`);
  result.labels.forEach((label, index) => {
    const item = element("li");
    item.append(isolated(label));
    if (result.counts) item.append(element("span", whole(result.counts[index])));
    list.append(item);
  });
  return list;
}
