import { SeededRandom } from "../../base/random.ts";
import { compileConstraint } from "../compile.ts";
import type { Pieces } from "./job.ts";
import type { Masks } from "./masks.ts";
import { Matcher, parserOf } from "./matcher.ts";

/**
 * Schema of the most common constraints: names, strings of all kinds, numbers, arrays, sets, and properties
 * of any name.
 */
const record = {
  type: "object",
  properties: {
    name: { type: "string", pattern: "^[a-z ]+$", maxLength: 40 },
    when: { type: "string", format: "date-time" },
    tags: { type: "array", items: { enum: ["red", "green", "blue"] } },
    words: { type: "array", items: { type: "string", maxLength: 5 }, uniqueItems: true },
    size: { type: "number", minimum: 0 },
    any: {},
  },
  required: ["name", "when", "tags", "words", "size", "any"],
};
/**
 * Strings that take the most work: counted words, ends and lengths that depend on each other, words found
 * anywhere.
 */
const strings = [
  { pattern: "^(?:\\S+\\s+){0,9}\\S+$", maxLength: 100 },
  { pattern: "^(?!.*//)(?=.{1,99}$)(.{1,31}\\.){1,63}(?![0-9]*$)[a-z0-9-]+$" },
  { pattern: "[0-9a-fA-F]+", minLength: 12, maxLength: 12 },
  { pattern: "red|green|blue" },
  { format: "uri", pattern: "^(https|file)://" },
].map((limits) => ({ type: "string", ...limits }));
const TOKENS_MAX = 48;
const STRING_TOKENS_MAX = 6;

/**
 * Writes a few answers at random, a token at a time. Code runs much slower the first time, and clients would
 * wait for it.
 */
export function* warmUp(masks: Masks): Pieces<void> {
  const random = new SeededRandom(1);
  const answers = [record, record, ...strings];
  for (const schema of answers) {
    const tokensMax = schema === record ? TOKENS_MAX : STRING_TOKENS_MAX;
    const { grammar } = compileConstraint({ kind: "schema", schema, layout: "compact" });
    const matcher = new Matcher(parserOf(grammar, masks), masks);
    while (matcher.length < tokensMax && !matcher.mustEnd) {
      matcher.forcedTokens(1);
      const mask = matcher.mask();
      const token = allowedFrom(mask, random.below(masks.vocabulary.size));
      if (token === null || !matcher.accept(token)) break;
      yield;
    }
  }
}

/** First allowed token from `first` on, wrapping around; null if there is none. */
function allowedFrom(mask: Uint32Array, first: number): number | null {
  const tokens = 32 * mask.length;
  for (let step = 0; step < tokens; step++) {
    const token = (first + step) % tokens;
    if (((mask[token >>> 5]! >>> (token & 31)) & 1) === 1) return token;
  }
  return null;
}
