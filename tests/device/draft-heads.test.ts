/**
 * Heads that draft tokens (multi-token prediction), on the CPU. What they draft is what a computation of torch
 * does (tests/reference/heads.py), in every instruction set, however the prompt is cut; and the model draws the
 * same bits with a head as without.
 */
import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bestIsa } from "../../gpu/native/open.ts";
import { isaNames } from "../../gpu/native.ts";
import { openModelFolder } from "../../model/folder.ts";
import { familyPrompt, writeFamily } from "../reference/families.ts";
import { headNames, headReference } from "../reference/heads.ts";
import { convertModel } from "../support/gguf-model.ts";
import { ggufBytes } from "../support/gguf-writer.ts";
import { sameBits } from "./compare.ts";
import { cpuLibrary, gpuEngines } from "./library.ts";
import { Rig, type RigOptions } from "./rig.ts";

setDefaultTimeout(60_000);

const library = cpuLibrary();
const scratch = mkdtempSync(join(tmpdir(), "bunting-heads-"));
afterAll(() => rmSync(scratch, { recursive: true }));
const isas = isaNames.slice(0, isaNames.indexOf(bestIsa(library)) + 1);
const DRAFTS = 4;

/** Drafts after some tokens of the prompt, which come in chunks of `size`. */
function draftsOf(path: string, position: number, size: number, options: Partial<RigOptions> = {}) {
  const rig = new Rig(library, openModelFolder(path, null, "required"), {
    ...{ compute: "f32", quant: "none", drafts: DRAFTS },
    ...options,
  });
  const stream = rig.stream(familyPrompt);
  const last = position - (position % size);
  while (stream.computed < last) rig.step([{ stream, count: size, isUndrawn: true }]);
  const drawn = rig.step([{ stream, count: position + 1 - last, drafts: DRAFTS }])[0]!;
  rig.close();
  return drawn;
}

describe.each(headNames.map((name) => [name]))("%s", (name) => {
  const folder = join(scratch, name);
  writeFamily(name, folder, {}, true);
  const wanted = headReference(name);

  const cases = isas.flatMap((isa) => [64, 7].map((size) => [isa, size] as const));
  test.each(cases)("on %s with chunks of %d the drafts are those of the reference", (isa, size) => {
    for (const [index, position] of wanted.positions.entries()) {
      const { token, drafts } = draftsOf(folder, position, size, { isa });
      expect(token).toBe(wanted.next[index]!);
      expect(drafts!.tokens).toEqual(wanted.drafts[index]!);
      for (const [i, probability] of drafts!.probabilities.entries())
        expect(Math.abs(Math.log(probability) - wanted.logprobs[index]![i]!)).toBeLessThan(2e-4);
    }
  });

  // MiMo's files have the architecture of Qwen2, and no head.
  test.if(name !== "mimo")("from a GGUF file of the same numbers they are the same", () => {
    const file = join(scratch, `${name}.gguf`);
    writeFileSync(file, ggufBytes(convertModel(folder, { type: "F32", hasHead: true })));
    for (const [index, position] of wanted.positions.entries())
      expect(draftsOf(file, position, 64).drafts!.tokens).toEqual(wanted.drafts[index]!);
  });

  test("the model draws the same bits with a head as without", () => {
    for (const compute of ["f32", "bf16"] as const) {
      for (const quant of compute === "f32" ? (["none"] as const) : (["none", "int8"] as const)) {
        const bits = (["none", "required"] as const).map((head) => {
          const drafts = head === "none" ? 0 : DRAFTS;
          const model = openModelFolder(folder, null, head);
          const rig = new Rig(library, model, { compute, quant, drafts });
          const logits: Float32Array[] = [];
          const tokens = rig.generate(rig.stream(familyPrompt), 12, 20, [], (_, row) => logits.push(row));
          rig.close();
          return { tokens, logits };
        });
        expect(bits[1]!.tokens).toEqual(bits[0]!.tokens);
        expect(bits[1]!.logits.every((row, i) => sameBits(row, bits[0]!.logits[i]!))).toBeTrue();
      }
    }
  });

  for (const { name: engine, library: gpu } of gpuEngines()) {
    test(`on ${engine} a head is refused`, () => {
      const model = openModelFolder(folder, null, "required");
      expect(() => new Rig(gpu, model, { compute: "bf16", quant: "none" })).toThrow(/computes no head/);
    });
  }
});

test("a model without a head, or with a part of one, is refused with its name where one is asked for", () => {
  const plain = join(scratch, "plain");
  writeFamily("qwen2-yarn", plain);
  expect(() => openModelFolder(plain, null, "required")).toThrow(/qwen2 model, which has no head/);
  const part = join(scratch, "part");
  writeFamily("glm4-moe", part);
  expect(() => openModelFolder(part, null, "required")).toThrow(/model\.layers\.3\..*the tensor is missing/);
  expect(openModelFolder(part, null, "offered").config.shape.head).toBeUndefined();
});
