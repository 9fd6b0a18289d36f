/* Elements of the page.  Labels are text that strangers wrote: they reach the page through textContent only. */

const SVG = "http://www.w3.org/2000/svg";

export function $(id) {
  return document.getElementById(id);
}

export function element(tag, text = "", name = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = name;
  return made;
}

// What turns text around or cannot be seen: it stands there by its number, and acts on nothing beside it.
const CONTROLS = /([\p{Cc}\u061c\u202a-\u202e\u2066-\u2069])/u;

export function isolated(label) {
  const made = element("bdi");
  label.split(CONTROLS).forEach((part, place) => made.append(place % 2 ? control(part) : part));
  return made;
}

function control(character) {
  const made = element("i", character, "control");
  made.dataset.code = codeOf(character);
  return made;
}

/* A label where there is text alone, such as a tooltip or a picture. */
export function visible(label) {
  return label.split(CONTROLS).map((part, place) => (place % 2 ? codeOf(part) : part)).join("");
}

function codeOf(character) {
  return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/* A picture of one path. */
export function drawing(viewBox) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", viewBox);
  svg.appendChild(document.createElementNS(SVG, "path"));
  return svg;
}

export function quiet(text) {
  return element("p", text, "quiet");
}

export function put(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/* The same with texts and elements. */
export function fill(target, parts) {
  if (target.textContent !== parts.map((part) => part.textContent ?? part).join("")) target.replaceChildren(...parts);
}

/* What the theme says: a custom property of the page's style. */
export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
