import type { Regex } from "./shape.ts";
import type { ExpressionTable } from "./tables.ts";

/** Counted alternatives that are compared pairwise, at most. */
const COMPARED_MAX = 32;
/** Bytes before a count that are compared: those of a character, or the rest of one. */
const CHARACTER_BYTES_MAX = 6;

/**
 * Merges alternatives that differ only in a count, such as 3 to 5 and 0 to 4 iterations. A repetition can
 * often begin at several places, as a label of a host name that may contain dots. Each place would add an
 * alternative, and each set of them a state.
 */
export function mergeCounts(expressions: ExpressionTable, parts: Regex[]): void {
  let counted = 0;
  for (const part of parts) if (expressions.isCounted(part)) counted += 1;
  if (counted < 2 || counted > COMPARED_MAX) return;
  for (let i = 1; i < parts.length; i++) {
    for (let j = 0; j < i; j++) {
      const merged = mergedOf(expressions, parts[i]!, parts[j]!, CHARACTER_BYTES_MAX);
      if (merged === null) continue;
      // The merged one may merge with any other.
      parts.splice(i, 1);
      parts.splice(j, 1);
      parts.push(merged);
      i = 0;
      break;
    }
  }
}

/**
 * Merges two expressions that differ only in a count after at most `bytes` bytes; null if they differ
 * otherwise.
 */
function mergedOf(expressions: ExpressionTable, one: Regex, other: Regex, bytes: number): Regex | null {
  const kind = expressions.kindOf(one);
  if (kind !== expressions.kindOf(other) || (kind !== "repeat" && kind !== "cat")) return null;
  const [of, otherOf] = [expressions.partOf(one, 0), expressions.partOf(other, 0)];
  if (kind === "repeat") {
    const [min, max] = [expressions.minOf(one), expressions.maxOf(one)];
    const [otherMin, otherMax] = [expressions.minOf(other), expressions.maxOf(other)];
    if (of !== otherOf || min > otherMax + 1 || otherMin > max + 1) return null;
    return expressions.repeat(of, Math.min(min, otherMin), Math.max(max, otherMax));
  }
  const [tail, otherTail] = [expressions.partOf(one, 1), expressions.partOf(other, 1)];
  if (tail === otherTail) {
    const head = mergedOf(expressions, of, otherOf, 0);
    return head === null ? null : expressions.cat(head, tail);
  }
  if (of !== otherOf || bytes === 0) return null;
  const merged = mergedOf(expressions, tail, otherTail, bytes - 1);
  return merged === null ? null : expressions.cat(of, merged);
}
