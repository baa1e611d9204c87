/**
 * Returns the name with the smallest edit distance to a misspelled one; null if every distance exceeds
 * `wrongMax`.
 */
export function closestTo(
  given: string,
  names: readonly string[],
  wrongMax = Math.max(2, given.length / 3),
): string | null {
  let closest: string | null = null;
  let least = Math.floor(wrongMax) + 1;
  for (const name of names) {
    const distance = editDistance(given, name);
    if (distance >= least) continue;
    closest = name;
    least = distance;
  }
  return closest;
}

/** Levenshtein distance: single characters inserted, deleted or replaced. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (const [i, letter] of [...a].entries()) {
    const next = [i + 1];
    for (let j = 0; j < b.length; j++)
      next.push(Math.min(next[j]! + 1, row[j + 1]! + 1, row[j]! + (letter === b[j] ? 0 : 1)));
    row = next;
  }
  return row[b.length]!;
}
