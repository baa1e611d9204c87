/** Masks of strings over a vocabulary that is large enough for whole subtrees to be allowed at once. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { compileConstraint } from "../compile.ts";
import { Masks } from "./masks.ts";
import { Matcher, parserOf } from "./matcher.ts";
import { vocabularyOf } from "./vocabulary.ts";

const encoder = new TextEncoder();
const plain = [..."ab1 é€\u2028😀"].map((unit) => encoder.encode(unit));
const all = [...plain, ...['"', "\\n", "\\u00", "\\"].map((unit) => encoder.encode(unit))];
/** `first` followed by every sequence of at most `most` units. */
function orders(first: string, units: readonly Uint8Array[], most: number): Uint8Array[] {
  const found = [encoder.encode(first)];
  let last = found;
  for (let length = 0; length < most; length++) {
    last = last.flatMap((text) => units.map((unit) => Uint8Array.from([...text, ...unit])));
    found.push(...last);
  }
  return found;
}
/**
 * Vocabulary: most first characters are followed by plain text alone, others by quotes, cut escapes, and
 * halves of characters.
 */
const texts: readonly Uint8Array[] = [
  ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
  ...[...'{":,}'].map((unit) => encoder.encode(`"${unit}`)),
  ...[..."acdgé "].flatMap((first) => orders(first, plain, 3)),
  ...[..."b1€"].flatMap((first) => orders(first, all, 2)),
  Uint8Array.of(97, 0xe2, 0x80),
  Uint8Array.of(98, 0xa9),
];
// The cache is small, so that evicted buffers are reused for other masks.
const masks = new Masks(
  vocabularyOf(texts.length, (token) => texts[token]!),
  0,
);

const pattern = fc.constantFrom(
  ...[
    "^.{1,255}$",
    "^[^1]*$",
    "a",
    "b1",
    "^(?:\\S+\\s+){0,3}\\S+$",
    "^https?",
    "^[ab1]+$",
    "^.+€.+$",
    "é$",
    "^[^a]*a[^a]*$",
    "^[\\dg]+$",
  ],
  ...["\\s", "^\\D+$", "^[\\s\\S]*b$", "^(?!a)", "^\\S*$"],
);
const length = fc.constantFrom(
  {},
  { maxLength: 5 },
  { minLength: 3 },
  { maxLength: 30 },
  { minLength: 2, maxLength: 300 },
);
const bytes = fc.array(fc.constantFrom(...encoder.encode('ab1 h"\\nué€😀')), { maxLength: 5 });

test("tokens that go on with a string are those of which every byte does", () => {
  fc.assert(
    fc.property(pattern, length, fc.boolean(), bytes, (source, limits, isKey, written) => {
      const string = { type: "string", pattern: source, ...limits };
      const schema = isKey ? { type: "object", propertyNames: string, minProperties: 1 } : string;
      const { grammar } = compileConstraint({ kind: "schema", schema, layout: "compact" });
      const matcher = new Matcher(parserOf(grammar, masks), masks);
      if (isKey) matcher.accept(123);
      matcher.accept(34);
      for (const byte of written) matcher.accept(byte);
      const mask = matcher.mask();
      const wrong = texts.flatMap((text, token) => {
        const isAllowed = ((mask[token >>> 5]! >>> (token & 31)) & 1) === 1;
        const isRight = matcher.accept(token);
        if (isRight) matcher.rollback(1);
        return isAllowed === isRight ? [] : [new TextDecoder().decode(text)];
      });
      expect(wrong).toEqual([]);
    }),
    runs(12),
  );
});
