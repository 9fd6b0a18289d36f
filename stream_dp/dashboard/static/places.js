/* Which ranks a label may really have: intervals that overlap leave the order open. */

let of = null, lows = [], highs = [];

/* The best and the worst rank of the label in this place of what is ranked, among the labels that are shown. */
export function places(ranked, index) {
  if (of !== ranked) {
    of = ranked;
    lows = Float64Array.from(ranked.low).sort();
    highs = Float64Array.from(ranked.high).sort();
  }
  const { low, high } = ranked;
  return [1 + lows.length - before(lows, high[index], true), highs.length - before(highs, low[index], false)];
}

/* How many of the sorted numbers are less than a value, or at most that. */
function before(numbers, value, isEqualToo) {
  let first = 0, last = numbers.length;
  while (first < last) {
    const middle = (first + last) >> 1;
    if (numbers[middle] < value || (isEqualToo && numbers[middle] === value)) first = middle + 1;
    else last = middle;
  }
  return first;
}
