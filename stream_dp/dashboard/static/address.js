/* The page's address says what is seen, so that a link shows it again. */

export function asked(name) {
  return new URLSearchParams(location.search).getAll(name);
}

export function address(name, values) {
  const found = new URLSearchParams(location.search);
  found.delete(name);
  for (const each of values) found.append(name, each);
  const query = found.toString();
  if (query !== location.search.slice(1)) history.replaceState(null, "", query ? `?${query}` : location.pathname);
}
