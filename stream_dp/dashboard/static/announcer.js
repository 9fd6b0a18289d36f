/* What is said aloud to those who do not see the page: politely, and not too often. */

import { $, put } from "./dom.js";
import { whole } from "./format.js";
import { view } from "./state.js";

const ANNOUNCE_MS = 20000;
let announcedAt = 0;

export function say(text) {
  put($("announcer"), text);
}

export function announce() {
  if (Date.now() - announcedAt < ANNOUNCE_MS || view.mode !== "live") return;
  announcedAt = Date.now();
  const { release, names, counts } = view.shown;
  const top = names.slice(0, 3).map((name, index) => `${name} ${whole(counts[index])}`).join(", ");
  const end = release.horizon === null ? "" : ` of ${whole(release.horizon)}`;
  say(`Round ${whole(release.round)}${end}. ${names.length} labels. ${top ? `Largest: ${top}.` : ""}`);
}
