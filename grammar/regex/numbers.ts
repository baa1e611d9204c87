/** Numbers of expressions, by themselves. */

/** More than there ever are. */
const NUMBERS_MAX = 2 ** 26;
/** Numbers that are sorted as they are inserted. */
const SORTED_IN_PLACE_MAX = 32;

/** One number for two. */
export function pairOf(a: number, b: number): number {
  return a * NUMBERS_MAX + b;
}

/** In ascending order, each once; the same array. */
export function sortedOnce<Part extends number>(parts: Part[]): Part[] {
  // There are few, and most are in order already.
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
