/**
 * Logits of every family on the CPU engine, from a folder and from a GGUF file of the same numbers, compared
 * with transformers. In bf16 they are near, also on the emulated GPU. kinds.test.ts tests for every kind of
 * layer that results do not depend on chunks, cache or company. correctness.test.ts does so for its families.
 */
import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openModelFolder } from "../../model/folder.ts";
import {
  cpuOnly,
  familyLogits,
  familyPositions,
  familyPrompt,
  foldersOnly,
  writeFamily,
} from "../reference/families.ts";
import { familyConfigs } from "../reference/family-configs.ts";
import { convertModel } from "../support/gguf-model.ts";
import { ggufBytes } from "../support/gguf-writer.ts";
import { cosineOf, largestDifference, sameBits } from "./compare.ts";
import { cpuLibrary, gpuEngines } from "./library.ts";
import { Rig } from "./rig.ts";

setDefaultTimeout(60_000);

const library = cpuLibrary();
const scratch = mkdtempSync(join(tmpdir(), "bunting-families-"));
afterAll(() => rmSync(scratch, { recursive: true }));

/**
 * Returns the logits after each position of the reference, from chunks that end there, or of at most `size`
 * tokens.
 */
function logitsOf(path: string, compute: "f32" | "bf16", on = library, size = 64): Float32Array[] {
  const rig = new Rig(on, openModelFolder(path), { compute, quant: "none" });
  const stream = rig.stream(familyPrompt);
  const logits = familyPositions.map((position) => {
    while (position + 1 - stream.computed > size) rig.step([{ stream, count: size, isUndrawn: true }]);
    return rig.step([{ stream, count: position + 1 - stream.computed }])[0]!.logits;
  });
  rig.close();
  return logits;
}

describe.each(Object.keys(familyConfigs).map((name) => [name]))("%s", (name) => {
  const folder = join(scratch, name);
  writeFamily(name, folder);
  const paths: [string, string][] = [["a folder", folder]];
  if (!foldersOnly.includes(name)) {
    const file = join(scratch, `${name}.gguf`);
    writeFileSync(file, ggufBytes(convertModel(folder, { type: "F32" })));
    paths.push(["a GGUF file", file]);
  }
  const wanted = familyLogits(name);

  test.each(paths)("from %s, in f32 the logits are those of transformers", (_, path) => {
    for (const [index, logits] of logitsOf(path, "f32").entries()) {
      expect(largestDifference(logits, wanted[index]!)).toBeLessThan(2e-4);
    }
  });

  // These mixtures have no two experts near enough for bf16 to choose another one.
  test("in bf16 they are near", () => {
    for (const [index, logits] of logitsOf(folder, "bf16").entries()) {
      expect(cosineOf(logits, wanted[index]!)).toBeGreaterThan(0.998);
    }
  });

  const isRecurrent = openModelFolder(folder).config.shape.states !== undefined;
  test.if(isRecurrent)("token by token it is the same bits as in chunks", () => {
    for (const compute of ["f32", "bf16"] as const) {
      const chunked = logitsOf(folder, compute);
      const single = logitsOf(folder, compute, library, 1);
      expect(single.map((logits, index) => sameBits(logits, chunked[index]!))).toEqual([true, true, true]);
    }
  });

  for (const { name: engine, library: gpu } of gpuEngines()) {
    const [kind, path] = paths.at(-1)!;
    if (cpuOnly.includes(name)) {
      test(`on ${engine} it is refused`, () => {
        expect(() => logitsOf(folder, "bf16", gpu)).toThrow(/the GPU engine computes/);
      });
      continue;
    }
    test(`on ${engine} they are near, and the same bits from ${kind} in one chunk as from a folder in three`, () => {
      const chunked = logitsOf(folder, "bf16", gpu);
      for (const [index, logits] of chunked.entries()) {
        expect(cosineOf(logits, wanted[index]!)).toBeGreaterThan(0.998);
      }
      const rig = new Rig(gpu, openModelFolder(path), { compute: "bf16", quant: "none" });
      const whole = rig.step([{ stream: rig.stream(familyPrompt), count: familyPrompt.length }]);
      rig.close();
      // Files of Falcon-H1 have its multipliers in their weights, rounded in another order.
      if (name === "falcon-h1") expect(cosineOf(whole[0]!.logits, wanted.at(-1)!)).toBeGreaterThan(0.998);
      else expect(sameBits(whole[0]!.logits, chunked.at(-1)!)).toBeTrue();
    });
  }
});
