/* The server's events: the newest release at most ten times a second. */

import { say } from "./announcer.js";
import { noteNew } from "./arrivals.js";
import { drawResults } from "./results.js";
import { openStream } from "./server.js";
import { changed, heard } from "./state.js";

const CLOSED = 2;  // of an EventSource
const SILENCE_MS = 15000;
const FIELDS = [
  "state", "stream", "age", "delay", "behind", "rate", "history", "release", "ids", "counts", "low", "high", "totals", "total_margins", "since", "found", "protects", "guarantee", "new", "results",
];
export let source = null;

export function connect() {
  source = openStream();
  source.addEventListener("whole", (event) => hear(JSON.parse(event.data), true));
  source.addEventListener("update", (event) => hear(JSON.parse(event.data), false));
  source.addEventListener("error", () => {
    if (heard.connected) say("Connection lost. Reconnecting.");
    heard.connected = false;
    if (source.readyState === CLOSED) reconnect();
    changed();
  });
}

export function reconnectIfSilent() {
  if (heard.connected && Date.now() - heard.at > SILENCE_MS) reconnect();
}

function reconnect() {
  source.close();
  heard.connected = false;
  setTimeout(connect, 1000 + 1000 * Math.random());
}

export function hear(frame, isWhole) {
  if (!heard.connected && heard.at) say("Connected again.");
  heard.connected = true;
  heard.at = Date.now();
  for (const name of FIELDS) if (name in frame) heard[name] = frame[name];
  if (isWhole) heard.names = frame.labels || [];
  else for (const label of frame.labels || []) heard.names.push(label);
  if (frame.new) noteNew(frame.new, isWhole);
  if (frame.results) drawResults(frame.results);
  changed();
}
