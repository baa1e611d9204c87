import type { Regex, Regexes } from "./regexes.ts";

/** Whether an expression matches so many texts at least. Texts are counted by their length, and not one by one: those with which the
 *  same is left are one. */
export function hasTexts(regexes: Regexes, regex: Regex, least: number): boolean {
  let found = 0;
  /** By what is left, how many beginnings of texts there are. */
  let begun = new Map<Regex, number>([[regex, 1]]);
  while (begun.size > 0) {
    const next = new Map<Regex, number>();
    // Each beginning has an end, and so is one text at least.
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
