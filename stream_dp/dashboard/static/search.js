/* Finding labels, and walking along their rows with the keyboard. */

import { $ } from "./dom.js";
import { changed, view } from "./state.js";

export function search() {
  view.query = $("search").value.trim();
  changed(true);
}

export function onKey(event) {
  if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(event.target.tagName) && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    $("search").focus();
  } else if (event.key === "Escape" && event.target === $("search")) {
    $("search").value = "";
    search();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && event.target.closest("#rows button, #search")) {
    walk(event);
  }
}

function walk(event) {
  const buttons = [...$("rows").querySelectorAll("button")];
  const next = buttons.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1);
  if (event.target === $("search") && event.key === "ArrowUp") return;
  event.preventDefault();
  (next < 0 ? $("search") : buttons[next] || event.target).focus();
}
