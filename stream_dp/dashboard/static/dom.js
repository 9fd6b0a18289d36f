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

export function isolated(label) {
  return element("bdi", label);
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
