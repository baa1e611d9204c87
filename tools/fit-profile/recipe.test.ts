/** Fitted tables reproduce the values behind the measured files, and missing measurements are errors. */

import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ProfileCostModel } from "../../scheduler/cost/profile.ts";
import { type Recipe, tableOf } from "./recipe.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-fit-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const recipe: Recipe = {
  name: "a device",
  source: "",
  licence: "MIT",
  tileTokens: 64,
  pages: 100,
  contextMax: 4096,
  folders: [scratch],
  layers: 4,
  overhead: null,
  head: { stepMs: 0, sequenceMs: 0 },
  kvTimes: 1,
  decode: null,
};

/**
 * Writes measurements of a device: four layers of 1 ms and 0.01 ms per token, attention of 0.1 ms plus its
 * reads, and a head of 2 ms.
 */
function writeDevice(): void {
  const sizes = [1, 16, 64, 256, 1024];
  const write = (file: string, head: string, rows: readonly (readonly (string | number)[])[]): void =>
    writeFileSync(join(scratch, file), [head, ...rows.map((row) => row.join(","))].join("\n"));
  write(
    "dense.csv",
    "layer,tokens,time_us",
    sizes.flatMap((tokens) => [
      ["qkv_proj", tokens, 1000 + 10 * tokens],
      ["embedding", tokens, 0],
    ]),
  );
  write(
    "per_sequence.csv",
    "layer,sequences,time_us",
    sizes.map((rows) => ["lm_head", rows, 2000 + rows]),
  );
  const contexts = [0, 128, 1024];
  write("attention.csv", "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us", [
    ...sizes.flatMap((chunk) =>
      contexts.map((context) => [chunk, context, 0, 0, 100 + 0.01 * chunk * (context + chunk / 2)]),
    ),
    ...sizes.flatMap((decodes) =>
      contexts.map((context) => [0, 0, decodes, context, 100 + 0.02 * decodes * context]),
    ),
  ]);
}

test("what was measured is what a step takes", () => {
  writeDevice();
  const model = new ProfileCostModel(tableOf(recipe));
  const prompt = model.stepMs({ prompts: [{ tokens: 256, context: 1024 }], decodes: 0, decodeContext: 0 });
  const pairsMs = 4 * (0.1 + 1e-5 * 256 * (1024 + 128));
  expect(prompt).toBeCloseTo(4 * (1 + 2.56) + pairsMs + 2.001, 1);
  const decodes = model.stepMs({ prompts: [], decodes: 64, decodeContext: 64 * 128 });
  expect(decodes).toBeCloseTo(4 * (1 + 0.64) + 4 * (0.1 + 2e-5 * 64 * 128) + 2.064, 1);
});

test("decodes of another device stand in for those that were not measured", () => {
  writeDevice();
  const other = tableOf(recipe);
  const { decode } = tableOf({ ...recipe, decode: { table: other, times: 2 } });
  expect(decode.contextMs).toBeCloseTo(2 * other.decode.contextMs, 8);
  expect(() => tableOf({ ...recipe, folders: [join(scratch, "none")] })).toThrow(
    "none: no measurements; known are dense.csv and attention.csv and per_sequence.csv;",
  );
});
