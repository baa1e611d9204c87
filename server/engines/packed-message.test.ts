import { expect, test } from "bun:test";
import fc from "fast-check";
import { greedySampling, type SequenceId, type SequenceSpec } from "../../scheduler/core.ts";
import type { EngineMessage } from "../../scheduler/messages.ts";
import { runs } from "../../tests/support/property.ts";
import { packed, unpacked } from "./packed-message.ts";

test("what crosses to an engine is what was sent, however long its lists are", () => {
  const tokens = fc.array(fc.nat(200_000), { maxLength: 200 });
  const bias = fc.array(fc.tuple(fc.nat(200_000), fc.double({ min: -100, max: 100 })), { maxLength: 200 });
  fc.assert(
    fc.property(tokens, bias, fc.array(tokens, { maxLength: 80 }), (promptTokens, logitBias, badWords) => {
      const sequence = {
        id: 7 as SequenceId,
        promptTokens,
        sampling: { ...greedySampling, logitBias, badWords },
      };
      const message: EngineMessage = { kind: "submit", sequence: sequence as unknown as SequenceSpec };
      expect(unpacked(structuredClone(packed(message)))).toEqual(message);
      expect(unpacked(structuredClone(packed(message)))).toEqual(message);
    }),
    runs(200),
  );
  const other: EngineMessage = { kind: "abort", sequence: 7 as SequenceId };
  expect(unpacked(packed(other))).toEqual(other);
});
