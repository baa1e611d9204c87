/**
 * Weights in int8, int6 and int4: effect on the logits, independence from company, and packed weights on
 * disk.
 */
import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { closeNativeModel, openNativeModel } from "../../gpu/native/open.ts";
import { type Isa, isaNames } from "../../gpu/native.ts";
import { openModelFolder } from "../../model/folder.ts";
import { formatsOf, type Quant } from "../../model/formats.ts";
import { referenceModel, referenceNames } from "../reference/models.ts";
import { cosineOf, sameBits } from "./compare.ts";
import { cpuLibrary } from "./library.ts";
import { Rig } from "./rig.ts";

setDefaultTimeout(60_000);

const library = cpuLibrary();
const scratch = mkdtempSync(join(tmpdir(), "bunting-quantised-"));
afterAll(() => rmSync(scratch, { recursive: true }));
const levels = isaNames.slice(0, isaNames.indexOf(library.machineProbe().isaBest) + 1);

function rigOf(dir: string, quant: Quant, isa: Isa | "auto" = "auto", packed: readonly string[] = []): Rig {
  return new Rig(library, openModelFolder(dir), { isa, quant, packedFolders: packed });
}

/** Returns the logits after every position of a prompt, each a stream of its own in one step. */
function logitsOf(rig: Rig, tokens: readonly number[]): Float32Array[] {
  const parts = tokens.map((_, position) => ({
    stream: rig.stream(tokens.slice(0, position + 1)),
    count: position + 1,
  }));
  const logits = rig.step(parts).map((drawn) => drawn.logits);
  for (const { stream } of parts) rig.free(stream);
  return logits;
}

/**
 * Cosines with the bf16 model that the mean over positions must exceed. Sums over 48 to 96 random weights are
 * hard on low-bit numbers. The steps of int6 are four times those of int8, and 1 - cosine grows with their
 * square.
 */
const cosineMin = { int8: 0.998, int6: 0.975, int4: 0.9 } as const;

describe.each(referenceNames.map((name) => [name]))("%s", (name) => {
  const { dir, prompts } = referenceModel(name);
  const tokens = prompts.short.slice(0, 24);
  const plain = rigOf(dir, "none");
  const original = logitsOf(plain, tokens);
  plain.close();

  test.each(["int8", "int6", "int4"] as const)(
    "in %s is near itself in bf16, the same in company on every level",
    (quant) => {
      for (const isa of levels) {
        const rig = rigOf(dir, quant, isa);
        const together = logitsOf(rig, tokens);
        const cosines = together.map((row, position) => cosineOf(row, original[position]!));
        expect(cosines.reduce((a, b) => a + b) / cosines.length).toBeGreaterThan(cosineMin[quant]);
        const alone = rig.stream(tokens);
        tokens.forEach((_, position) => {
          const [drawn] = rig.step([{ stream: alone, count: 1 }]);
          expect(sameBits(drawn!.logits, together[position]!)).toBeTrue();
        });
        rig.close();
      }
    },
  );
});

describe("packed weights", () => {
  const { dir, prompts } = referenceModel("qwen3");
  const tokens = prompts.short.slice(0, 8);
  let copies = 0;
  const copyOfModel = (): string => {
    copies += 1;
    const copy = join(scratch, `model-${copies}`);
    cpSync(dir, copy, { recursive: true });
    return copy;
  };
  const packedIn = (folder: string): string[] =>
    readdirSync(folder).filter((name) => name.endsWith(".bunting-packed"));
  /** Opens a device, computes, and closes it. */
  const start = (model: string, quant: Quant, folders: readonly string[]) => {
    const rig = rigOf(model, quant, "auto", folders);
    const result = { note: rig.packedNote, logits: logitsOf(rig, tokens).at(-1)! };
    rig.close();
    return result;
  };

  test("are written at the first start and read at the second, one file for each way to round", () => {
    const model = copyOfModel();
    for (const quant of ["none", "int8", "int4"] as const) {
      const first = start(model, quant, [model]);
      expect(first.note).toStartWith("packed weights were written to ");
      const second = start(model, quant, [model]);
      expect(second.note).toStartWith("packed weights were read from ");
      expect(sameBits(second.logits, first.logits)).toBeTrue();
    }
    expect(packedIn(model)).toHaveLength(3);
  });

  test("are told about while they are written and read", () => {
    const folder = openModelFolder(copyOfModel());
    const formats = formatsOf(folder.tensors, folder.config.shape.layers.length, "int8", "bf16");
    const options = { compute: "bf16", isa: "auto", threads: 2, formats, contextMax: null } as const;
    const stages = (): string[] => {
      const seen: { stage: string; share: number }[] = [];
      const model = openNativeModel(
        library,
        folder,
        { ...options, packedFolders: [scratch] },
        (done, total, stage) => seen.push({ stage, share: done / total }),
      );
      closeNativeModel(library, model);
      return seen.filter(({ share }) => share === 1).map(({ stage }) => stage);
    };
    expect(stages()).toEqual(["loading", "keeping"]);
    expect(stages()).toEqual(["reading"]);
  });

  test("are made anew when damaged, or when the model's file changes", () => {
    const model = copyOfModel();
    const first = start(model, "int8", [model]);
    const file = join(model, packedIn(model)[0]!);
    const bytes = readFileSync(file);
    bytes[bytes.length - 100]! ^= 16;
    writeFileSync(file, bytes);
    const damaged = start(model, "int8", [model]);
    expect(damaged.note).toContain("its weights are damaged; packed weights were written to ");
    expect(sameBits(damaged.logits, first.logits)).toBeTrue();
    utimesSync(join(model, "model.safetensors"), new Date(), new Date("2001-02-03"));
    const changed = start(model, "int8", [model]);
    expect(changed.note).toContain(
      "made from other files or for other settings; packed weights were written",
    );
    expect(start(model, "int8", [model]).note).toStartWith("packed weights were read from ");
  });

  test.skipIf(process.getuid?.() === 0)("go to the next folder when the first cannot be written", () => {
    const model = copyOfModel();
    const other = join(scratch, "cache", "packed");
    chmodSync(model, 0o500);
    expect(start(model, "int8", [model, other]).note).toContain(other);
    chmodSync(model, 0o700);
    expect(packedIn(model)).toEqual([]);
  });

  test("go to the next folder when the first is none, and models of one name do not meet there", () => {
    const none = join(scratch, "a file");
    writeFileSync(none, "");
    const cache = join(scratch, "shared");
    const [one, two] = ["x", "y"].map((name) => {
      const model = join(scratch, name, "model");
      mkdirSync(join(scratch, name));
      cpSync(dir, model, { recursive: true });
      return model;
    });
    for (const model of [one!, two!]) {
      expect(start(model, "int4", [join(none, "x"), cache]).note).toStartWith(
        `packed weights were written to ${cache}`,
      );
    }
    expect(packedIn(cache)).toHaveLength(2);
    expect(start(one!, "int4", [cache]).note).toStartWith("packed weights were read from ");
  });

  test("are not kept where there is no folder, and the model is loaded all the same", () => {
    const none = join(scratch, "another file");
    writeFileSync(none, "");
    expect(start(copyOfModel(), "int4", [join(none, "x")]).note).toBeNull();
  });
});
