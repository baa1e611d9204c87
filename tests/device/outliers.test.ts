/** Activations with a few channels hundreds of times larger than the others. */
import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openModelFolder } from "../../model/folder.ts";
import type { Quant } from "../../model/formats.ts";
import { plantOutliers } from "../../tools/plant-outliers.ts";
import { writeRandomModel } from "../../tools/random-model.ts";
import { sameBits } from "./compare.ts";
import { cpuLibrary, emulatedLibrary } from "./library.ts";
import { Rig } from "./rig.ts";

setDefaultTimeout(60_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-outliers-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const [smooth, planted] = [join(scratch, "smooth"), join(scratch, "planted")];
const json = {
  ...{ architectures: ["LlamaForCausalLM"], hidden_size: 256, intermediate_size: 512, vocab_size: 400 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, num_hidden_layers: 3, max_position_embeddings: 128 },
  ...{ tie_word_embeddings: false, initializer_range: 0.06 },
};
writeRandomModel({ file: "config.json", json }, smooth, { seed: 11 });
plantOutliers(smooth, planted, 256);

const tokens = Array.from({ length: 32 }, (_, index) => (index * 37 + 11) % 400);

function logitsOf(library: ReturnType<typeof cpuLibrary>, path: string, quant: Quant): Float32Array[] {
  const rig = new Rig(library, openModelFolder(path), { quant });
  const logits = rig.logitsAfterEach(tokens);
  rig.close();
  return logits;
}

/** KL divergence, sum p ln(p / q) in nats, averaged over positions. */
function divergence(want: readonly Float32Array[], got: readonly Float32Array[]): number {
  const logs = (logits: Float32Array): number[] => {
    const largest = Math.max(...logits);
    const sum = logits.reduce((total, value) => total + Math.exp(value - largest), 0);
    return Array.from(logits, (value) => value - largest - Math.log(sum));
  };
  const each = want.map((row, position) => {
    const [p, q] = [logs(row), logs(got[position]!)];
    return p.reduce((total, log, token) => total + Math.exp(log) * (log - q[token]!), 0);
  });
  return each.reduce((a, b) => a + b) / each.length;
}

test("planting them changes no bit of what the model computes in bf16", () => {
  const want = logitsOf(cpuLibrary(), smooth, "none");
  expect(logitsOf(cpuLibrary(), planted, "none").every((row, at) => sameBits(row, want[at]!))).toBeTrue();
});

test.each(["int8", "int6", "q8_0", "int4"] as const)(
  "beside weights in %s they cost little more than the same weights with activations in bf16",
  (quant) => {
    const want = logitsOf(cpuLibrary(), planted, "none");
    const ofWeights = divergence(want, logitsOf(emulatedLibrary(), planted, quant));
    const loss = divergence(want, logitsOf(cpuLibrary(), planted, quant));
    expect(loss).toBeLessThan(ofWeights * 1.25 + 0.002);
  },
);
