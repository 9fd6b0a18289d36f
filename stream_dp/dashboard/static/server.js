/* Where everything on the page comes from: the server that sent it.  In a notebook, kernel.js stands in its place. */

const API = `${location.origin}${location.pathname.replace(/[^/]*$/, "")}api/v1`;  // without a name and password that the address may hold
const ANSWER_MS = 20000;

/* Without a limit of time, a question that nobody answers would stop all that come after it. */
export function ask(question) {
  return fetch(`${API}/${question}`, { signal: AbortSignal.timeout(ANSWER_MS) });
}

/* The events of the stream, from now on. */
export function openStream() {
  return new EventSource(`${API}/stream`);
}

/* What the viewer asked for, as in a link. */
export function query() {
  return location.search;
}

export function setQuery(text) {
  if (text !== location.search.slice(1)) history.replaceState(null, "", text ? `?${text}` : location.pathname);
}
