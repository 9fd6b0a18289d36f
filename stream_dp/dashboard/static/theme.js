/* Light, dark, or what the system asks for, or in a notebook its own theme. */

import { $ } from "./dom.js";
import { remember, remembered } from "./memory.js";

const THEMES = ["system", "light", "dark"];
const around = document.documentElement.dataset.theme;

function known() {
  return THEMES.find((each) => each === remembered("theme", "system")) || "system";
}

function setTheme(theme) {
  const drawn = theme === "system" ? around : theme;
  if (drawn) document.documentElement.dataset.theme = drawn;
  else delete document.documentElement.dataset.theme;
  $("theme").textContent = `Theme: ${theme}`;
  remember("theme", theme);
}

export function restoreTheme() {
  setTheme(known());
}

export function nextTheme() {
  setTheme(THEMES[(THEMES.indexOf(known()) + 1) % THEMES.length]);
}
