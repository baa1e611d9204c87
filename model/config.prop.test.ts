import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { referenceModels } from "../tests/reference/models.ts";
import { runs } from "../tests/support/property.ts";
import { parseModelConfig } from "./config.ts";
import type { JsonObject } from "./json.ts";
import { ModelError } from "./model-error.ts";
import { rotationOf } from "./rope.ts";

const configs = referenceModels().map(
  ({ dir }) => JSON.parse(readFileSync(join(dir, "config.json"), "utf8")) as JsonObject,
);
const fields = [...new Set(configs.flatMap((config) => Object.keys(config)))];
const extraFields = ["rope_scaling", "rope_parameters", "layer_types", "auto_map", "quantization_config"];

/** Field values that a careless edit or a broken tool may leave. */
const value = fc.oneof(
  fc.constantFrom(null, true, false, "", "silu", "16", [], {}, [2], { factor: 2 }, { rope_type: "llama3" }),
  fc.constantFrom(0, -1, 1, 16, 1e9, 2 ** 31, 2 ** 53, 2 ** 62, 1e308, -0, 0.5),
  fc.integer({ min: 1, max: 64 }),
  fc.jsonValue({ maxDepth: 2 }),
);

test("a changed configuration gives a shape that can be computed, or a ModelError", () => {
  let accepted = 0;
  fc.assert(
    fc.property(
      fc.constantFrom(...configs),
      fc.array(fc.tuple(fc.constantFrom(...fields, ...extraFields), value), { minLength: 1, maxLength: 3 }),
      (config, changes) => {
        const json = { ...config, ...Object.fromEntries(changes) };
        let shape: ReturnType<typeof parseModelConfig>["shape"];
        try {
          ({ shape } = parseModelConfig({ file: "c", json }, { file: "g", json: {} }));
        } catch (error) {
          expect(error).toBeInstanceOf(ModelError);
          return;
        }
        accepted += 1;
        const sizes = [
          shape.hidden,
          shape.feedForward,
          shape.queryHeads,
          shape.kvHeads,
          shape.vocab,
          shape.contextMax,
        ];
        for (const size of sizes) expect(Number.isInteger(size) && size >= 1 && size <= 2 ** 26).toBe(true);
        expect(shape.queryHeads % shape.kvHeads).toBe(0);
        expect(shape.headSize % 16).toBe(0);
        for (const real of [shape.normEpsilon, shape.attentionScale]) expect(real).toBeGreaterThan(0);
        for (const rope of shape.ropes) {
          const { frequencies, magnitude } = rotationOf(rope, shape.contextMax);
          expect(frequencies).toHaveLength(rope.dimensions / 2);
          expect([...frequencies, magnitude].every((real) => Number.isFinite(real) && real >= 0)).toBeTrue();
          expect(rope.dimensions).toBeLessThanOrEqual(shape.headSize);
        }
        for (const { slidingWindow, rope } of shape.layers) {
          expect(Number.isInteger(slidingWindow) && slidingWindow >= 0 && slidingWindow < 2 ** 31).toBe(true);
          expect(rope === null || rope < shape.ropes.length).toBeTrue();
        }
      },
    ),
    runs(3000),
  );
  expect(accepted).toBeGreaterThan(300);
});
