/* Numbers and times as people read them. */

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function whole(value) {
  return number.format(value);
}

/* A change: +1,200 or −30. */
export function signed(value) {
  return `${value > 0 ? "+" : value < 0 ? "−" : ""}${whole(Math.abs(value))}`;
}

export function small(value) {
  const short = Number(value.toPrecision(3));
  return value !== 0 && Math.abs(value) < 0.001 ? short.toExponential() : String(short);
}

export function rate(value) {
  return value >= 100 ? whole(value) : value.toFixed(1);
}

export function percent(share) {
  return `${(100 * share).toFixed(share < 0.1 ? 2 : 1)}%`;
}

/* The next number up of which a scale may be made. */
export function rounded(value) {
  const step = 10 ** Math.floor(Math.log10(value)) / 2;
  return Math.max(1, Math.ceil(value / step) * step);
}

export function span(seconds) {
  const units = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  const [size, unit] = units.find(([each]) => seconds >= 2 * each) || units.at(-1);
  return `${whole(Math.floor(seconds / size))} ${unit}s`;
}

export function ago(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s ago`;
  return seconds < 120 ? `${Math.floor(seconds)} s ago` : `${span(seconds)} ago`;
}

/* Seconds since 1970 as what tells them apart from others that are `step` seconds away. */
export function timeOf(seconds, step) {
  const text = new Date(1000 * seconds).toISOString();
  return step >= 86400 || seconds % 86400 === 0 ? text.slice(0, 10) : text.slice(11, step >= 60 ? 16 : 19);
}

/* Seconds since 1970 as a time of day, with the date. */
export function moment(seconds) {
  return when(new Date(1000 * seconds).toISOString()).slice(0, -4);
}

export function when(ts) {
  return `${ts.slice(0, 10)} ${ts.slice(11, 19)} UTC`;
}
