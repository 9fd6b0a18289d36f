"use strict";
/* The page of the dashboard.  The server sends the newest release at most ten times a second; this file draws it.

   Labels are text that strangers wrote: they reach the page through textContent only, and never become keys of
   plain objects.  The DOM is bounded: at most MOST_ROWS rows, however many labels are released. */

const ROWS_STEP = 25, MOST_ROWS = 200, MOST_PINS = 20, NORMAL_95 = 1.96;
const TABLE_MS = 400, TREND_MS = 2000, SILENCE_MS = 15000, ANNOUNCE_MS = 20000, FRESH_MS = 12000, REPLAY_SECONDS = 60;
const API = `${location.origin}${location.pathname.replace(/[^/]*$/, "")}api/v1`;  // without a name and password that the address may hold
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

const heard = { names: [], release: null, ids: [], counts: [], low: [], high: [], state: "connecting", rate: null, history: [1, 0] };
const rows = new Map();      // label -> the elements of its row
const trends = new Map();    // label -> counts at `trendRounds`, for visible rows only
const freshUntil = new Map();  // label -> when it stops being marked as new
const pins = new Set(remembered("pins", []).slice(0, MOST_PINS).filter((each) => typeof each === "string"));
let connected = false, heardAt = 0, source = null, newest = new Set();
let mode = "live";           // live, paused, or past: a release that was looked up
let shown = null;            // the release on the page: { release, names, counts, promise, rank: Map }
let limit = ROWS_STEP, query = "", scale = 1, hovering = false;
let tableAt = 0, drawing = false, trendRounds = [], trendKey = "", trendAt = 0, trendBusy = false, announcedAt = 0;

/* ---- what the server says ---- */

function connect() {
  source = new EventSource(`${API}/stream`);
  source.addEventListener("whole", (event) => hear(JSON.parse(event.data), true));
  source.addEventListener("update", (event) => hear(JSON.parse(event.data), false));
  source.onerror = () => {
    if (connected) say("Connection lost. Reconnecting.");
    connected = false;
    if (source.readyState === EventSource.CLOSED) reconnect();
    schedule();
  };
}

function reconnect() {
  source.close();
  connected = false;
  setTimeout(connect, 1000 + 1000 * Math.random());
}

function hear(frame, isWhole) {
  if (!connected && heardAt) say("Connected again.");
  connected = true;
  heardAt = Date.now();
  for (const name of ["state", "age", "delay", "behind", "rate", "history", "release", "ids", "counts", "low", "high", "promise", "new", "results"]) {
    if (name in frame) heard[name] = frame[name];
  }
  if (isWhole) heard.names = frame.labels || [];
  else for (const label of frame.labels || []) heard.names.push(label);
  if (frame.new) noteNew(frame.new, isWhole);
  if (frame.results) drawResults(frame.results);
  schedule();
}

function noteNew(found, isWhole) {
  for (const [label, until] of freshUntil) if (until < Date.now()) freshUntil.delete(label);
  for (const [label] of found) if (!isWhole && !newest.has(label)) freshUntil.set(label, Date.now() + FRESH_MS);
  newest = new Set(found.map(([label]) => label));
  $("new").replaceChildren(...found.map(([label, round]) => {
    const item = document.createElement("li");
    item.append(isolated(label), " ", element("small", `round ${whole.format(round)}`));
    item.title = label;
    return item;
  }));
  $("no-new").hidden = found.length > 0;
}

/* ---- drawing: once per animation frame at most, so a hidden tab draws nothing ---- */

function schedule() {
  if (!drawing) {
    drawing = true;
    requestAnimationFrame(() => { drawing = false; draw(); });
  }
}

function draw(force = false) {
  const isShown = shown && shown.release === heard.release && shown.promise === heard.promise;
  if (mode === "live" && heard.release && !isShown) {
    show(heard.release, heard.ids.map((id) => heard.names[id]), heard);
  }
  drawStatus();
  if (!shown) return;
  drawFacts();
  const now = performance.now();
  if (force || now - tableAt >= TABLE_MS) {  // slower than the facts above: order and numbers are of one release
    tableAt = now;
    if (force || !hovering || !rows.size) order(!force && !calm.matches && rows.size <= 60);  // nothing moves away under a pointer
    drawScale();
    for (const [label, row] of rows) drawRow(label, row);
    $("table").dataset.round = shown.release.round;
    refreshTrends(force);
  }
  announce();
}

function show(release, names, { counts, low, high, promise }) {
  if (shown && shown.release.nonce !== release.nonce) {
    trends.clear();
    trendKey = "";
    for (const label of rows.keys()) drawTrend(label, [], []);
  }
  shown = { release, names, counts, low, high, promise, rank: new Map(names.map((name, index) => [name, index])) };
}

function drawStatus() {
  const [kind, text, notice] = status();
  put($("badge"), text);
  $("badge").dataset.kind = kind;
  put($("notice-text"), notice || "");
  $("notice").hidden = !notice;
  $("live").hidden = mode === "live";
  const age = heard.age == null ? null : heard.age + (Date.now() - heardAt) / 1000;
  put($("age"), age == null ? "–" : ago(age));
  put($("rate"), heard.rate == null || !connected ? "–" : rate(heard.rate));
}

function status() {
  const release = shown && shown.release;
  if (!connected) return ["warn", heardAt ? "Reconnecting" : "Connecting",
    heardAt && "The server does not answer. What you see is the last release that came; the page goes on by itself."];
  if (mode === "past") return ["past", "History", lookBack.problem || `${notReleased(release)}You see round ${
    whole.format(release.round)} of epoch ${release.epoch} as it was released, ${when(release.ts)}.`];
  if (mode === "paused") return ["past", "Paused", `You see round ${whole.format(release.round)}. The stream goes on meanwhile.`];
  if (heard.state === "unreachable") return ["warn", "Kafka unreachable", "The server cannot reach Kafka. It keeps trying."];
  if (heard.state === "no-topic") return ["wait", "Waiting", "The stream has no releases topic yet: start its worker, or check the stream's name."];
  if (!release) return ["wait", "Waiting", null];
  if (release.round >= release.horizon) return ["wait", "Complete", "The horizon is reached: this epoch releases nothing more."];
  if (heard.delay > REPLAY_SECONDS) return ["past", "Replay",
    `Older than live: this release is about ${when(release.ts)} and was published ${span(heard.delay)} later.`];
  if (heard.behind > 500) return ["past", "Catching up", `${whole.format(heard.behind)} newer releases are on their way.`];
  if (heard.age + (Date.now() - heardAt) / 1000 > 60) return ["wait", "Idle", null];
  return ["live", "Live", null];
}

/* Not every round need be released: the answer for one that was not is an earlier release. */
function notReleased(release) {
  const asked = askedRound();
  return asked === null || lookBack.busy || asked === release.round ? "" : `Round ${whole.format(asked)} was not released. `;
}

function askedRound() {
  return mode === "past" && lookBack.wanted.startsWith("round=") ? Number(lookBack.wanted.slice(6)) : null;
}

/* What stream_dp/releases/silence.py says of a release without labels. */
function silence(release) {
  const expected = release.shown === "kept" && release.round >= release.tau + 4 * release.sd;
  return expected ? `${whole.format(release.round)} rounds without a label: records may not match the mapping; see dead letters.` : "";
}

function drawFacts() {
  const { release, counts, promise } = shown;
  put($("stream"), release.stream);
  document.title = `${release.stream} · stream-dp`;
  put($("about"), `Private running histogram · epoch ${release.epoch}`);
  put($("round"), whole.format(release.round));
  put($("horizon"), whole.format(release.horizon));
  $("progress").value = release.round / release.horizon;
  put($("ts"), `at ${release.ts.slice(11, 19)} UTC`);
  $("ts").title = when(release.ts);
  put($("margin"), `± ${whole.format(Math.ceil(NORMAL_95 * release.sd))}`);
  put($("sd"), `sd ${release.sd.toFixed(1)} in every count`);
  put($("tau"), whole.format(release.tau));
  put($("tau-note"), release.shown === "kept" ? "to be shown, and kept" : "least count released");
  put($("released"), whole.format(counts.length));
  put($("epsilon"), small(release.epsilon));
  put($("delta"), small(release.delta));
  put($("rho"), small(release.rho));
  put($("promise"), promise);
  put($("unit"), `one ${release.unit}`);
  put($("mechanism"), release.mechanism);
  $("empty").hidden = counts.length > 0 || rows.size > 0;
  put($("empty"), silence(release) || "No label has reached the threshold yet.");
  $("travel").hidden = false;
  $("slider").max = heard.release.round;
  const asked = askedRound();
  if (asked === null) $("slider").value = release.round;
  put($("slider-value"), `round ${whole.format(asked !== null && (lookBack.busy || lookBack.problem) ? asked : release.round)}`);
}

/* Which labels have rows, and in which order: pinned ones first, then by count. */
function order(glide) {
  const { names, rank } = shown;
  const wanted = query.toLocaleLowerCase();
  const found = wanted ? names.filter((name) => name.toLocaleLowerCase().includes(wanted)) : names;
  const byRank = (a, b) => (rank.get(a) ?? Infinity) - (rank.get(b) ?? Infinity) || (a < b ? -1 : 1);
  const pinned = [...pins].filter((name) => !wanted || name.toLocaleLowerCase().includes(wanted)).sort(byRank);
  const others = found.filter((name) => !pins.has(name)).slice(0, limit);
  const focused = document.activeElement;
  for (const [label, row] of rows) {  // who walks along the rows with the keyboard does not lose the place
    if (row.pin === focused && focused.matches(":focus-visible") && !pins.has(label) && !others.includes(label)) others.push(label);
  }
  const visible = [...pinned, ...others];
  const before = new Map();
  if (glide) for (const [label, row] of rows) before.set(label, row.line.offsetTop);
  const keep = new Set(visible);
  for (const [label, row] of rows) if (!keep.has(label)) { row.line.remove(); rows.delete(label); trends.delete(label); }
  let place = $("rows").firstElementChild;
  visible.forEach((label, index) => {
    if (!rows.has(label)) rows.set(label, newRow(label));
    const row = rows.get(label);
    if (row.line === place) place = place.nextElementSibling;
    else $("rows").insertBefore(row.line, place);
    row.line.classList.toggle("last-pinned", index === pinned.length - 1 && others.length > 0);
  });
  if (focused && focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
  for (const [label, top] of before) {
    const row = rows.get(label);
    const moved = row ? top - row.line.offsetTop : 0;
    if (moved) row.line.animate([{ transform: `translateY(${moved}px)` }, { transform: "none" }], { duration: 220, easing: "ease-out" });
  }
  const hiddenRows = found.filter((name) => !pins.has(name)).length - others.length;
  $("more").hidden = hiddenRows <= 0 || limit >= MOST_ROWS;
  put($("more"), `Show ${Math.min(ROWS_STEP, hiddenRows)} more`);
  $("matches").hidden = !wanted && !(hiddenRows > 0 && limit >= MOST_ROWS);
  put($("matches"), wanted
    ? `${whole.format(found.length)} of ${whole.format(names.length)} released labels match. One that is missing is not a zero.`
    : `The ${MOST_ROWS} largest are shown; search for the others.`);
}

function newRow(label) {
  const line = element("tr"), row = { line };
  line.setAttribute("role", "row");
  const cell = (name, ...children) => {
    const made = element("td", "", name);
    made.setAttribute("role", "cell");
    made.append(...children);
    line.append(made);
    return made;
  };
  row.rank = cell("rank");
  row.tag = element("span", "new", "tag");
  cell("name", isolated(label), row.tag).title = label;
  row.track = element("span", "", "track");
  for (const name of ["spread", "solid", "tick"]) row.track.append(element("i", "", name));
  cell("bar", row.track).setAttribute("aria-hidden", "true");
  row.count = cell("count");
  row.interval = cell("interval");
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 100 24");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  row.trend = svg;
  row.path = svg.appendChild(document.createElementNS(SVG, "path"));
  cell("trend", svg);
  row.pin = element("button");
  row.pin.type = "button";
  row.pin.setAttribute("aria-label", `Pin ${label}`);
  const icon = row.pin.appendChild(document.createElementNS(SVG, "svg"));
  icon.setAttribute("viewBox", "0 0 16 16");
  icon.setAttribute("aria-hidden", "true");
  icon.appendChild(document.createElementNS(SVG, "path")).setAttribute("d", "M5.5 2h5l-.6 4.6 2.1 2.4H4l2.1-2.4zM8 9v5");
  row.pin.addEventListener("click", () => togglePin(label));
  cell("pin", row.pin);
  return row;
}

function drawScale() {
  const { release, counts, rank } = shown;
  let largest = release.tau;
  for (const label of rows.keys()) if (rank.has(label)) largest = Math.max(largest, counts[rank.get(label)]);
  largest += NORMAL_95 * release.sd;
  if (largest > scale || largest < 0.6 * scale) scale = rounded(1.06 * largest);  // stands still between, for calm
  $("table").style.setProperty("--tau-at", (release.tau / scale).toFixed(4));
  put($("axis-end"), release.tau / scale > 0.75 ? "" : whole.format(scale));
}

function drawRow(label, row) {
  const { release, counts, rank } = shown;
  const index = rank.get(label);
  row.line.classList.toggle("absent", index === undefined);
  const fresh = (freshUntil.get(label) || 0) > Date.now();
  row.line.classList.toggle("fresh", fresh);
  row.tag.hidden = !fresh;
  row.pin.setAttribute("aria-pressed", String(pins.has(label)));
  put(row.rank, index === undefined ? "–" : whole.format(index + 1));
  put(row.count, index === undefined ? "–" : whole.format(counts[index]));
  if (index === undefined) return put(row.interval, "below threshold");
  const count = counts[index], low = shown.low[index], high = shown.high[index];
  put(row.interval, `${whole.format(low)} – ${whole.format(high)}`);
  const style = row.track.style;
  style.setProperty("--low", (low / scale).toFixed(4));
  style.setProperty("--high", Math.min(1, high / scale).toFixed(4));
  style.setProperty("--at", Math.max(0, count / scale).toFixed(4));
}

/* ---- sparklines: fetched for the visible rows, again when the server's history has grown ---- */

async function refreshTrends(force) {
  const key = heard.history.join(":");
  const missing = [...rows.keys()].some((label) => !trends.has(label));
  if (trendBusy || !connected || shown.release.nonce !== heard.release.nonce || (key === trendKey && !missing) || (!force && Date.now() - trendAt < TREND_MS)) return;
  trendBusy = true;
  trendAt = Date.now();
  try {
    for (const some of batches([...rows.keys()])) {
      const answer = await fetch(`${API}/history?${some.map((label) => `label=${encodeURIComponent(label)}`).join("&")}`);
      if (!answer.ok) return;
      const { rounds, series } = await answer.json();
      trendRounds = rounds;
      for (const { label, counts } of series) if (rows.has(label)) { trends.set(label, counts); drawTrend(label, rounds, counts); }
    }
    trendKey = key;
  } catch { /* the connection is watched elsewhere */ } finally { trendBusy = false; }
}

function batches(labels) {
  const found = [];
  let length = Infinity;
  for (const label of labels) {
    const size = encodeURIComponent(label).length + 7;
    if (length + size > 8000 || found.at(-1).length >= 100) { found.push([]); length = 0; }
    found.at(-1).push(label);
    length += size;
  }
  return found;
}

function drawTrend(label, rounds, counts) {
  const end = rounds.at(-1) || 1, largest = Math.max(1, ...counts);
  let path = "", pen = "M", first = null, last = null;
  counts.forEach((count, index) => {
    if (count === null) { pen = "M"; return; }
    const place = `${(100 * rounds[index] / end).toFixed(1)} ${(22 - 20 * Math.max(0, count) / largest).toFixed(1)}`;
    path += pen === "M" ? `M${place}h0` : `L${place}`;  // h0: a point between two gaps is a dot
    pen = "L";
    first ??= count;
    last = count;
  });
  const row = rows.get(label);
  row.path.setAttribute("d", path);
  row.trend.setAttribute("aria-label", first === null ? "no earlier releases" : `from ${whole.format(first)} to ${whole.format(last)}`);
}

/* ---- results ---- */

function drawResults(results) {
  $("results").hidden = results.length === 0;
  $("result-cards").replaceChildren(...results.map((result) => {
    const card = element("article", "", "card");
    const about = [result.ts && when(result.ts), ...Object.entries(result.cost).map(([name, value]) => `${name} ${small(value)}`)];
    const list = element("ol");
    list.tabIndex = 0;
    list.setAttribute("aria-label", `Labels of ${result.title}`);
    result.labels.forEach((label, index) => {
      const item = element("li");
      item.append(isolated(label));
      if (result.counts) item.append(element("span", whole.format(result.counts[index])));
      list.append(item);
    });
    const more = result.released - result.labels.length;
    card.append(element("h3", result.title), quiet(about.filter(Boolean).join(" · ")), list);
    if (more > 0) card.append(quiet(`and ${whole.format(more)} more`));
    for (const note of result.notes) card.append(quiet(note));
    if (result.sd !== null && result.counts) card.append(quiet(`Noise of every count, 95%: ± ${whole.format(Math.ceil(NORMAL_95 * result.sd))}`));
    if (result.guarantee) card.append(quiet(result.guarantee));
    return card;
  }));
}

/* ---- people ---- */

function togglePin(label) {
  if (pins.has(label)) pins.delete(label);
  else if (pins.size < MOST_PINS) pins.add(label);
  else return say(`No more than ${MOST_PINS} labels can be pinned.`);
  remember("pins", [...pins]);
  say(`${label} ${pins.has(label) ? "pinned" : "no longer pinned"}.`);
  draw(true);
}

function setMode(next) {
  mode = next;
  lookBack.problem = "";
  $("pause").setAttribute("aria-pressed", String(mode === "paused"));
  put($("pause"), mode === "paused" ? "Resume" : "Pause");
  draw(true);
}

/* Ask for a release of the past: the newest at or before a round, or of a moment.  Of many questions the last one counts. */
async function lookBack(question) {
  lookBack.wanted = question;
  if (mode !== "past") setMode("past");  // from now on the slider is the viewer's
  if (lookBack.busy) return;
  lookBack.busy = true;
  for (let asked = ""; asked !== lookBack.wanted && mode === "past";) {
    asked = lookBack.wanted;
    try {
      const answer = await fetch(`${API}/release?${asked}`);
      const found = await answer.json();
      if (asked !== lookBack.wanted || mode !== "past") continue;
      if (answer.ok) show(found, found.labels, found);
      lookBack.problem = answer.ok ? "" : `There is nothing to show: ${found.error}.`;
    } catch { lookBack.problem = "That release cannot be read now."; }
    draw(true);
    say(lookBack.problem || `Round ${whole.format(shown.release.round)} of epoch ${shown.release.epoch} is shown.`);
  }
  lookBack.busy = false;
  draw();
}

function lookBackToMoment() {
  const moment = $("moment").value;  // empty while it is being typed
  if (moment) lookBack(`at=${moment}Z`);
}

function announce() {
  if (Date.now() - announcedAt < ANNOUNCE_MS || mode !== "live") return;
  announcedAt = Date.now();
  const { release, names, counts } = shown;
  const top = names.slice(0, 3).map((name, index) => `${name} ${whole.format(counts[index])}`).join(", ");
  say(`Round ${whole.format(release.round)} of ${whole.format(release.horizon)}. ${names.length} labels. ${top ? `Largest: ${top}.` : ""}`);
}

function say(text) { put($("announcer"), text); }

function onKey(event) {
  if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(event.target.tagName) && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    $("search").focus();
  } else if (event.key === "Escape" && event.target === $("search")) {
    $("search").value = "";
    search();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.target.closest("#rows button, #search")) {
    const buttons = [...$("rows").querySelectorAll("button")];
    const next = buttons.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1);
    if (event.target === $("search") && event.key === "ArrowUp") return;
    event.preventDefault();
    (next < 0 ? $("search") : buttons[next] || event.target).focus();
  }
}

function search() { query = $("search").value.trim(); draw(true); }

function setTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  $("theme").textContent = `Theme: ${theme}`;
  remember("theme", theme);
}

/* ---- small things ---- */

function element(tag, text = "", name = "") { const made = document.createElement(tag); made.textContent = text; made.className = name; return made; }
function isolated(label) { return element("bdi", label); }
function quiet(text) { return element("p", text, "quiet"); }
function put(target, text) { if (target.textContent !== text) target.textContent = text; }
function remember(name, value) { try { localStorage.setItem(`stream-dp.${name}`, JSON.stringify(value)); } catch { /* private window */ } }
function remembered(name, otherwise) {
  try { return JSON.parse(localStorage.getItem(`stream-dp.${name}`)) ?? otherwise; } catch { return otherwise; }
}
function small(value) { return value !== 0 && Math.abs(value) < 0.001 ? String(Number(value.toPrecision(3)).toExponential()) : String(Number(value.toPrecision(3))); }
function rate(value) { return value >= 100 ? whole.format(value) : value.toFixed(1); }
function rounded(value) { const step = 10 ** Math.floor(Math.log10(value)) / 2; return Math.max(1, Math.ceil(value / step) * step); }
function span(seconds) {
  const [size, unit] = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]].find(([each]) => seconds >= 2 * each) || [1, "second"];
  return `${whole.format(Math.floor(seconds / size))} ${unit}s`;
}
function ago(seconds) { return seconds < 10 ? `${seconds.toFixed(1)} s ago` : seconds < 120 ? `${Math.floor(seconds)} s ago` : `${span(seconds)} ago`; }
function when(ts) { return `${ts.slice(0, 10)} ${ts.slice(11, 19)} UTC`; }

const THEMES = ["system", "light", "dark"];
setTheme(THEMES.find((each) => each === remembered("theme", "system")) || "system");
$("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(remembered("theme", "system")) + 1) % 3]));
$("pause").addEventListener("click", () => shown && setMode(mode === "live" ? "paused" : "live"));
$("live").addEventListener("click", () => { setMode("live"); $("pause").focus(); });
$("more").addEventListener("click", () => { limit = Math.min(MOST_ROWS, limit + ROWS_STEP); draw(true); });
$("search").addEventListener("input", search);
$("slider").addEventListener("input", () => lookBack(`round=${$("slider").value}`));
$("moment").addEventListener("change", lookBackToMoment);
$("rows").addEventListener("pointerenter", (event) => { hovering = event.pointerType === "mouse"; });
$("rows").addEventListener("pointerleave", () => { hovering = false; });
document.addEventListener("keydown", onKey);
setInterval(() => {
  if (connected && Date.now() - heardAt > SILENCE_MS) reconnect();
  schedule();
}, 500);
connect();
