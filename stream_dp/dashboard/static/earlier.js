/* How the counts of the chart's labels grew in the epochs before this one: they do not change any more. */

import { ask } from "./server.js";
import { changed, heard } from "./state.js";
import { questions } from "./trends.js";

const MOST_EPOCHS = 3, LOOK_MS = 2000;
const request = { busy: false, at: 0, key: "" };
let found = { nonce: "", epochs: [] };  // oldest first, each with its rounds, its times, and series by label

export function earlierEpochs(nonce) {
  return found.nonce === nonce ? found.epochs : [];
}

export async function refreshEarlier(labels) {
  const { nonce, epoch } = heard.release, key = JSON.stringify([nonce, labels]);
  if (epoch === 1 || request.busy || key === request.key || !heard.connected || Date.now() - request.at < LOOK_MS) return;
  Object.assign(request, { busy: true, at: Date.now() });
  try {
    const epochs = [];
    for (let each = epoch - 1; each >= Math.max(1, epoch - MOST_EPOCHS); each -= 1) {
      const told = await historyOf(each, labels);
      if (told.rounds.length) epochs.unshift(told);
    }
    found = { nonce, epochs };
    request.key = key;
    changed(true);
  } catch { /* the connection is watched elsewhere */ } finally {
    request.busy = false;
  }
}

async function historyOf(epoch, labels) {
  const told = { epoch, rounds: [], times: [], series: new Map() };
  for (const some of questions(labels)) {
    const answer = await ask(`history?epoch=${epoch}&${some}`);
    if (!answer.ok) throw new Error(answer.statusText);
    const { rounds, ts, series } = await answer.json();
    Object.assign(told, { rounds, times: ts.map((each) => Date.parse(each) / 1000) });
    for (const each of series) told.series.set(each.label, each);
  }
  return told;
}
