/* The page's address says what is seen, so that a link shows it again. */

import { query, setQuery } from "./server.js";

export function asked(name) {
  return new URLSearchParams(query()).getAll(name);
}

export function address(name, values) {
  const found = new URLSearchParams(query());
  found.delete(name);
  for (const each of values) found.append(name, each);
  setQuery(found.toString());
}
