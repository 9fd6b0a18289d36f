/* The results of one-shot jobs. */

import { $, element, isolated, quiet } from "./dom.js";
import { small, when, whole } from "./format.js";

const AT_FIRST = 8;

export function drawResults(results) {
  $("results").hidden = results.length === 0;
  $("result-cards").replaceChildren(...results.map(card));
}

function card(result) {
  const made = element("article", "", "card");
  const about = [result.ts && when(result.ts), ...charged(result)].filter(Boolean).join(" · ");
  made.append(element("h3", result.title), quiet(about), origin(result), ...labels(result));
  const more = result.released - result.labels.length;
  if (more > 0) made.append(quiet(`and ${whole(more)} more`));
  for (const note of result.notes) made.append(quiet(note));
  if (result.guarantee) made.append(quiet(result.guarantee));
  return made;
}

/* Under which name it was asked for, and whose budget paid: it need not be the source of the stream. */
function origin({ id, source }) {
  const made = quiet("");
  made.append(isolated(id), ...(source ? [" · charged to ", isolated(source)] : []));
  return made;
}

/* The guarantee names the epsilon of this job.  The ledger's epsilon, at a delta of its own, would be another number. */
function charged({ cost, guarantee }) {
  const names = guarantee ? ["rho"] : Object.keys(cost);
  return names.filter((name) => name in cost).map((name) => `${name} ${small(cost[name])}`);
}

function labels(result) {
  const first = list(result, 0, AT_FIRST);
  if (result.labels.length <= AT_FIRST) return [first];
  const rest = element("details");
  rest.append(element("summary", `${whole(result.labels.length - AT_FIRST)} more`), list(result, AT_FIRST));
  return [first, rest];
}

/* A count with the ends of its 95% interval, if the record has them. */
function counted({ counts, low, high }, place) {
  const told = whole(counts[place]);
  return low && high ? `${told} (${whole(low[place])}–${whole(high[place])})` : told;
}

function list(result, start, end) {
  const made = element("ol");
  made.start = start + 1;
  made.setAttribute("aria-label", `Labels of ${result.title}`);
  result.labels.slice(start, end).forEach((label, index) => {
    const item = element("li");
    item.append(isolated(label));
    if (result.counts) item.append(element("span", counted(result, start + index)));
    made.append(item);
  });
  return made;
}
