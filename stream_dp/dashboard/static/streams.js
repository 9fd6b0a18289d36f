/* The index of several streams: what runs, how it is, and the way to the page of each. */

import { say } from "./announcer.js";
import { $, element, isolated, put } from "./dom.js";
import { ago, when, whole } from "./format.js";
import { ask } from "./server.js";
import { inWords, spark, sparkline } from "./sparks.js";
import { stateOf } from "./states.js";
import { nextTheme, restoreTheme } from "./theme.js";

const ASK_MS = 2000, CLOCK_MS = 500;
const cards = new Map();  // by the name of the stream
let told = [], toldAt = 0;

async function refresh() {
  if (!document.hidden) await look();
  setTimeout(refresh, ASK_MS);
}

async function look() {
  try {
    const answer = await ask("streams");
    if (!answer.ok) throw new Error(String(answer.status));
    told = await answer.json();
    toldAt = Date.now();
    put($("notice-text"), "");
  } catch {
    put($("notice-text"), `The server does not answer.${toldAt ? ` What you see is from ${when(new Date(toldAt).toISOString())}.` : ""} The page goes on by itself.`);
  }
  $("notice").hidden = !$("notice-text").textContent;
  draw();
}

function draw() {
  if (!toldAt) return;
  put($("about"), `Private running histograms · ${told.length === 1 ? "1 stream" : `${whole(told.length)} streams`}`);
  for (const each of told) fill(cards.get(each.stream) ?? made(each), each);
}

/* An empty card at the end of the list. */
function made({ stream, address }) {
  const card = element("li", "", "card stream"), head = element("header"), title = element("h2"), link = element("a");
  const facts = element("dl"), part = { card, badge: element("span", "", "badge"), word: "" };
  link.href = address;
  link.append(isolated(stream));
  title.append(link);
  head.append(title, part.badge);
  for (const [name, words] of [["age", "Last release"], ["released", "Labels released"], ["round", "Round"]]) {
    const pair = element("div");
    part[name] = element("dd", "–");
    pair.append(element("dt", words), part[name]);
    facts.append(pair);
  }
  part.largest = element("p", "", "quiet largest");
  part.trend = sparkline();
  const line = element("div", "", "trend");
  line.append(part.trend);
  part.note = element("p", "", "quiet");
  part.protects = element("p", "", "protects");
  part.sentence = element("a");
  part.sentence.href = `${address}protection.html`;
  part.protects.append(part.sentence);
  card.append(head, facts, part.largest, line, part.note, part.protects);
  cards.set(stream, part);
  $("streams").append(card);
  return part;
}

function fill(part, each) {
  const { release, protects } = each, age = each.age + (Date.now() - toldAt) / 1000;
  const [kind, word, note] = stateOf({ ...each, age });
  if (part.word && part.word !== word) say(`${each.stream}: ${word}`);
  part.word = word;
  put(part.badge, word);
  part.badge.dataset.kind = kind;
  put(part.note, [note, each.unmetered && "UNMETERED: nothing bounds what all releases of its source together reveal."].filter(Boolean).join(" "));
  part.note.hidden = !part.note.textContent;
  part.largest.hidden = part.protects.hidden = !release;
  if (!release) return;
  put(part.age, ago(age));
  part.age.title = when(release.ts);
  put(part.released, whole(each.released));
  put(part.round, whole(release.round));
  part.round.title = release.horizon === null ? `the last ${whole(release.window)} rounds` : `of ${whole(release.horizon)}, epoch ${release.epoch}`;
  drawLargest(part.largest, each.largest);
  part.trend.firstChild.setAttribute("d", spark(each.rounds, each.counts));
  part.trend.setAttribute("aria-label", `Most frequent label, ${inWords(each.counts)}`);
  put(part.sentence, protects);
}

/* Labels are text that strangers wrote, in any direction. */
function drawLargest(target, labels) {
  const key = JSON.stringify(labels);
  if (target.dataset.labels === key) return;
  target.dataset.labels = key;
  const names = labels.flatMap((label, place) => (place ? [", ", isolated(label)] : [isolated(label)]));
  target.replaceChildren(...(names.length ? ["Most frequent: ", ...names] : ["No label is frequent enough to be shown yet."]));
}

restoreTheme();
$("theme").addEventListener("click", nextTheme);
document.addEventListener("visibilitychange", () => document.hidden || look());
setInterval(draw, CLOCK_MS);
refresh();
