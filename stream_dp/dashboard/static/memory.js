/* What the browser keeps for the viewer from one visit to the next. */

export function remember(name, value) {
  try {
    localStorage.setItem(`stream-dp.${name}`, JSON.stringify(value));
  } catch { /* private window */ }
}

export function remembered(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(`stream-dp.${name}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}
