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

/* The name of what is remembered for this page alone: where one server has several streams, each has its own. */
export function ofPlace(name) {
  const folder = location.pathname.replace(/[^/]*$/, "");
  return folder.length > 1 ? `${name} ${folder}` : name;
}
