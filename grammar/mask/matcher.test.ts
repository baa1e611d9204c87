import { heapStats } from "bun:jsc";
import { expect, test } from "bun:test";
import { compileConstraint } from "../compile.ts";
import { Masks } from "./masks.ts";
import { Matcher, parserOf } from "./matcher.ts";
import { vocabularyOf } from "./vocabulary.ts";

const TOKENS = 3000;
const texts = ['"', "a", "b"].map((text) => new TextEncoder().encode(text));

function objects(): number {
  Bun.gc(true);
  return heapStats().objectCount;
}

test("a text keeps no object for a token, though each leads to a state that was not met before", () => {
  const schema = { type: "string", minLength: TOKENS, maxLength: 2 * TOKENS };
  const { grammar } = compileConstraint({ kind: "schema", schema, layout: "compact" });
  const masks = new Masks(vocabularyOf(texts.length, (token) => texts[token]!));
  const matcher = new Matcher(parserOf(grammar, masks), masks);
  const write = (token: number, times: number): void => {
    for (let i = 0; i < times; i++) {
      matcher.forcedTokens(1);
      matcher.mask();
      expect(matcher.accept(token)).toBe(true);
    }
  };
  write(0, 1);
  write(1, 100);
  const before = objects();
  write(2, TOKENS);
  expect(objects() - before).toBeLessThan(TOKENS / 2);
});
