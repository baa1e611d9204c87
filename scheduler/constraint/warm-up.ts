import { SeededRandom } from "../random.ts";
import { compileConstraint } from "./compile.ts";
import type { Masks } from "./masks.ts";
import { Matcher, parserOf } from "./matcher.ts";

/** Of what answers are held to most: names, strings of all kinds, numbers, arrays, and properties of any name. */
const schema = {
  type: "object",
  properties: {
    name: { type: "string", pattern: "^[a-z ]+$", maxLength: 40 },
    when: { type: "string", format: "date-time" },
    tags: { type: "array", items: { enum: ["red", "green", "blue"] } },
    size: { type: "number", minimum: 0 },
    any: {},
  },
  required: ["name", "when", "tags", "size", "any"],
};
const ANSWERS = 2;
const TOKENS_MAX = 48;

/** Writes a few answers at random. Code that is run for the first time is many times as slow, which clients would wait for. */
export function warmUp(masks: Masks): void {
  const { grammar } = compileConstraint({ kind: "schema", schema, layout: "compact" });
  const random = new SeededRandom(1);
  for (let answer = 0; answer < ANSWERS; answer++) {
    const matcher = Matcher.of(parserOf(grammar, masks), masks);
    while (matcher.length < TOKENS_MAX && !matcher.mustEnd) {
      matcher.forcedTokens(1);
      const mask = matcher.mask();
      const token = allowedFrom(mask, random.below(masks.vocabulary.size));
      if (token === null || !matcher.accept(token)) break;
    }
  }
}

/** The next allowed token from one on, round about; null: there is none. */
function allowedFrom(mask: Uint32Array, first: number): number | null {
  const tokens = 32 * mask.length;
  for (let step = 0; step < tokens; step++) {
    const token = (first + step) % tokens;
    if (((mask[token >>> 5]! >>> (token & 31)) & 1) === 1) return token;
  }
  return null;
}
