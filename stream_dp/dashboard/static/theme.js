/* Light, dark, or what the system asks for. */

import { $ } from "./dom.js";
import { remember, remembered } from "./memory.js";

const THEMES = ["system", "light", "dark"];

function known() {
  return THEMES.find((each) => each === remembered("theme", "system")) || "system";
}

function setTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  $("theme").textContent = `Theme: ${theme}`;
  remember("theme", theme);
}

export function restoreTheme() {
  setTheme(known());
}

export function nextTheme() {
  setTheme(THEMES[(THEMES.indexOf(known()) + 1) % THEMES.length]);
}
