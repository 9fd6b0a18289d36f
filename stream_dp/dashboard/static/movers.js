/* What rose and fell since the window before by more than noise and chance explain. */

import { $, element, isolated, put } from "./dom.js";
import { signed, span } from "./format.js";
import { inWords, secondsOf } from "./spans.js";
import { view } from "./state.js";
import { age } from "./status.js";

const MOST = 6;

export function drawMovers(pin) {
  const { recent } = view;
  const silence = silent(recent), moves = recent && !recent.problem && !silence && recent.moves;
  list($("rising"), (moves || []).filter(({ change }) => change > 0).slice(0, MOST), "▲", "rose", pin);
  list($("falling"), (moves || []).filter(({ change }) => change < 0).slice(0, MOST), "▼", "fell", pin);
  put($("movers-note"), silence || (moves ? note(recent) : "Cannot tell yet: that takes two windows to compare."));
}

const LONGEST_SILENCE = 0.1;  // of the window, as in stream_dp/releases/window_lookup.py

/* After a silence nobody can tell what fell: perhaps the worker stands still. */
function silent(recent) {
  if (!recent || recent.problem || view.mode !== "live") return "";
  const length = secondsOf(recent.window);
  if (!length || age() < LONGEST_SILENCE * length) return "";
  return `Cannot tell: nothing was released for ${span(age())}. There were no events, or the worker stands still.`;
}

/* What the numbers are. */
function note({ moves, window }) {
  const both = `the ${inWords(window)} and the time of that length before`;
  return moves.length ? `How counts changed between ${both}, by more than noise and ordinary chance explain. The 95% interval is that of the noise.`
    : `Between ${both}, nothing changed by more than noise and ordinary chance explain.`;
}

function list(target, moves, mark, word, pin) {
  const key = JSON.stringify(moves);
  if (target.dataset.key === key) return;
  target.dataset.key = key;
  target.replaceChildren(...moves.map(({ label, change, low, high }) => {
    const item = element("li"), button = element("button", "", "mover"), sign = element("span", mark, "move");
    sign.dataset.sign = Math.sign(change);
    sign.setAttribute("aria-hidden", "true");
    button.type = "button";
    button.title = "Pin it to see it over time";
    const count = element("span", "", "change");
    count.append(element("b", signed(change)), element("small", `${signed(Math.floor(low))} to ${signed(Math.ceil(high))}`));
    button.append(sign, isolated(label), element("span", ` ${word}, `, "hidden"), count);
    button.addEventListener("click", () => pin(label));
    item.append(button);
    return item;
  }));
}
