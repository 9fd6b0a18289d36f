/* What is rising, and what is falling, by more than noise explains. */

import { $, element, isolated, put } from "./dom.js";
import { whole } from "./format.js";
import { view } from "./state.js";
import { inWords } from "./windows.js";

const MOST = 6;

export function drawMovers(pin) {
  const { recent } = view;
  const isKnown = recent && !recent.problem;
  const moves = isKnown ? recent.names.filter((label) => recent.moves.has(label)) : [];
  const rising = moves.filter((label) => recent.moves.get(label) > 0).slice(0, MOST);
  const falling = moves.filter((label) => recent.moves.get(label) < 0).slice(0, MOST);
  list($("rising"), rising, "▲", "rising", pin);
  list($("falling"), falling, "▼", "falling", pin);
  put($("movers-note"), isKnown ? note(inWords(recent.window), moves.length > 0) : "There are not yet two windows to compare.");
}

/* What the numbers are. */
function note(window, isAnything) {
  return isAnything ? `Counts of the ${window}. They differ from those of the time of that length before by more than noise explains.`
    : `Nothing rose or fell in the ${window} by more than noise explains, beside the time of that length before.`;
}

function list(target, labels, mark, word, pin) {
  const { recent } = view;
  const key = JSON.stringify(labels.map((label) => [label, recent.counts[recent.rank.get(label)]]));
  if (target.dataset.key === key) return;
  target.dataset.key = key;
  target.replaceChildren(...labels.map((label) => {
    const item = element("li"), button = element("button", "", "mover"), sign = element("span", mark, "move");
    sign.dataset.sign = mark === "▲" ? 1 : -1;
    sign.setAttribute("aria-hidden", "true");
    button.type = "button";
    button.title = "Pin it to see it over time";
    button.append(sign, isolated(label), element("span", ` ${word}, `, "hidden"), element("b", whole(recent.counts[recent.rank.get(label)])));
    button.addEventListener("click", () => pin(label));
    item.append(button);
    return item;
  }));
}
