/**
 * Any steps on any value: the result is a value within the limits or an error sentence, and the same each
 * time.
 */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../../tests/support/property.ts";
import type { Value } from "../spec.ts";
import { transforms } from "./table.ts";
import { parseStep, type Step, transformWith } from "./transform.ts";
import { byteLength, valueLimits } from "./value.ts";

const transform = transformWith({ truncate: (text, tokensMax) => text.slice(0, tokensMax) });

const text = fc.oneof(
  fc.string({ unit: "grapheme", maxLength: 30 }),
  fc.constantFrom(
    "1. a\n- b\n\n3) c",
    '{"a": [1, {"b": null}]}',
    "```json\n[1]\n```",
    "2024-02-30",
    " -1e3 ",
    "a,b",
  ),
);
const value: fc.Arbitrary<Value> = fc.oneof(text, fc.array(text, { maxLength: 4 }));

/** Arguments that some step accepts, and some that none does. */
const argument = fc.oneof(
  fc.constant(null),
  fc.integer({ min: -3, max: 5 }),
  text,
  fc.constantFrom(
    "a",
    "(a|b)*",
    "[^,]+",
    "(?i)A.",
    "$.a[*]",
    "a[-1].b",
    "[0]",
    "{{value}}{{value}}",
    "DD.MM.YYYY",
  ),
  fc.array(text, { maxLength: 3 }),
  fc.record({ pattern: fc.constantFrom("(a)(b)?", "x{2}", "("), group: fc.integer({ min: -1, max: 3 }) }),
  fc.jsonValue(),
);
const given = fc.oneof(
  fc
    .tuple(fc.constantFrom(...Object.keys(transforms), "none such"), argument)
    .map(([name, one]) => ({ [name]: one })),
  fc.constantFrom(...Object.keys(transforms)),
  argument,
);

test("steps are taken or refused, and what is taken can be applied to anything", () => {
  fc.assert(
    fc.property(value, fc.array(given, { maxLength: 5 }), (start, all) => {
      const steps = all.flatMap((one): Step[] => {
        const step = parseStep(one);
        if (!("problem" in step)) return [step];
        expect(step.problem.length).toBeGreaterThan(0);
        return [];
      });
      const result = transform(start, steps);
      if (result.kind === "failed") expect(result.message.length).toBeGreaterThan(0);
      else {
        const items = typeof result.value === "string" ? [result.value] : result.value;
        expect(items.length).toBeLessThanOrEqual(valueLimits.itemsMax);
        for (const item of items) expect(typeof item).toBe("string");
        expect(items.reduce((sum, item) => sum + byteLength(item), 0)).toBeLessThanOrEqual(
          valueLimits.bytesMax,
        );
      }
      expect(transform(start, steps)).toEqual(result);
      expect(transform(start, JSON.parse(JSON.stringify(steps)))).toEqual(result); // as stored in a recording
    }),
    runs(1000),
  );
});
