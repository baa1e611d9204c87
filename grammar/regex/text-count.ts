import type { Regex, Regexes } from "./regexes.ts";

/**
 * True if an expression matches at least `least` texts. Texts are counted by length: prefixes with the same
 * derivative are counted together.
 */
export function hasTexts(regexes: Regexes, regex: Regex, least: number): boolean {
  let found = 0;
  /** Number of prefixes by their derivative. */
  let begun = new Map<Regex, number>([[regex, 1]]);
  while (begun.size > 0) {
    const next = new Map<Regex, number>();
    // Each prefix can be completed, and so counts for at least one text.
    let going = 0;
    for (const [rest, count] of begun) {
      if (regexes.isNullable(rest)) found += count;
      const { classOf, representatives } = regexes.partitionOf(rest);
      regexes.budget.spend(representatives.length);
      const sizes = new Array<number>(representatives.length).fill(0);
      for (const index of classOf) sizes[index]! += 1;
      for (const [index, byte] of representatives.entries()) {
        const after = regexes.derivative(rest, byte);
        if (regexes.isEmpty(after)) continue;
        const more = count * sizes[index]!;
        going += more;
        next.set(after, (next.get(after) ?? 0) + more);
      }
    }
    if (found + going >= least) return true;
    begun = next;
  }
  return found >= least;
}
