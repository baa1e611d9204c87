/** Helpers for numbers of expressions. */

/** Upper bound of an expression's number. */
const NUMBERS_MAX = 2 ** 26;
/** Longest array that is sorted by insertion alone. */
const SORTED_IN_PLACE_MAX = 32;

/** Key for a pair of numbers. */
export function pairOf(a: number, b: number): number {
  return a * NUMBERS_MAX + b;
}

/** Sorts the array in place and removes duplicates. */
export function sortedOnce<Part extends number>(parts: Part[]): Part[] {
  // Insertion is fast here: arrays are short and mostly sorted already.
  if (parts.length > SORTED_IN_PLACE_MAX) parts.sort((a, b) => a - b);
  let count = 0;
  for (const part of parts) {
    let at = count;
    while (at > 0 && parts[at - 1]! > part) at--;
    if (at > 0 && parts[at - 1] === part) continue;
    parts.copyWithin(at + 1, at, count);
    parts[at] = part;
    count += 1;
  }
  parts.length = count;
  return parts;
}
