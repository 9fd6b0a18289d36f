/* The page of the what-if: settings, and what a stream would show under them beside the true counts. */

import { asked } from "./address.js";
import { $, element, isolated, put } from "./dom.js";
import { rounded, whole } from "./format.js";
import { ask } from "./server.js";

let busy = false, tried = "";

function wanted() {
  const epsilon = 2 ** Number($("epsilon").value);
  const [mechanism, discover = "default"] = $("mechanism").value.split(" ");
  return new URLSearchParams({ epsilon, horizon: $("horizon").value, items: $("items").value || 1, mechanism, discover }).toString();
}

/* Of many changes the last one counts: while the kernel computes, none is queued. */
async function look() {
  put($("epsilon-value"), (2 ** Number($("epsilon").value)).toPrecision(3));
  if (busy) return;
  busy = true;
  $("rows").setAttribute("aria-busy", "true");
  while (tried !== wanted()) {
    tried = wanted();
    put($("state"), "Trying …");
    try {
      const answer = await ask(`try?${tried}`), found = await answer.json();
      if (answer.ok) draw(found);
      put($("state"), answer.ok ? "" : `These settings cannot be: ${found.error}.`);
    } catch {
      put($("state"), "The kernel does not answer: change a setting to try again.");
    }
  }
  $("rows").setAttribute("aria-busy", "false");
  busy = false;
}

function draw({ rows, margin, tau, labels, all_labels: all, recall, first, counted, protects }) {
  put($("protects"), protects);
  put($("margin"), `± ${whole(margin)}`);
  put($("tau"), whole(tau));
  put($("labels"), `${whole(labels)} of ${whole(all)}`);
  put($("recall"), `${Math.round(100 * recall)}%`);
  put($("first"), first === null ? "never" : `${whole(first)} events`);
  put($("about"), `${whole(Number(asked("events")[0]))} public events, of whose counts ${Math.round(100 * counted)}% are within the limit of items`);
  const scale = rounded(1.06 * Math.max(1, ...rows.map(([, count, shown]) => Math.max(count, (shown ?? 0) + margin))));
  $("rows").replaceChildren(...rows.map((row) => line(row, margin, scale)));
}

function line([label, count, shown], margin, scale) {
  const made = element("tr"), bar = element("td", "", "bar"), track = element("span", "", "track");
  for (const name of ["spread", "solid", "tick", "true"]) track.append(element("i", "", name));
  const share = (value) => Math.min(1, Math.max(0, value / scale)).toFixed(4);
  track.style.setProperty("--true", share(count));
  if (shown !== null) {
    track.style.setProperty("--low", share(shown - margin));
    track.style.setProperty("--high", share(shown + margin));
    track.style.setProperty("--at", share(shown));
  }
  track.setAttribute("aria-hidden", "true");
  bar.append(track);
  const name = element("td", "", "name");
  name.append(isolated(label));
  made.classList.toggle("absent", shown === null);
  made.append(name, bar, element("td", shown === null ? "not shown" : whole(shown), "count"), element("td", whole(count), "count"));
  return made;
}

for (const name of ["horizon", "mechanism"]) {
  $(name).replaceChildren(...asked(name).map((each) => new Option(name === "horizon" ? `${whole(Number(each))} rounds` : each, each)));
}
$("mechanism").value = "blt";
put($("items-title"), asked("unit")[0] === "user" ? "Items of one user" : "Items of one event");
for (const name of ["epsilon", "horizon", "items", "mechanism"]) $(name).addEventListener("input", look);
$("form").addEventListener("submit", (event) => event.preventDefault());
look();
