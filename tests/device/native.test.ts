/** Native boundary seen from TypeScript: models and steps that it refuses, and the error messages. */
import { afterAll, describe, expect, test } from "bun:test";
import { copyFileSync, cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { InvariantError } from "../../base/assert.ts";
import {
  bestIsa,
  closeNativeModel,
  openCpuDevice,
  openNativeModel,
  PAGE_TOKENS,
  servedShape,
} from "../../gpu/native/open.ts";
import { isaNames, openLibrary } from "../../gpu/native.ts";
import { openModelFolder } from "../../model/folder.ts";
import { plainLayer } from "../../model/shape.ts";
import type { SequenceId, Step, StepResult } from "../../scheduler/core.ts";
import { sampling } from "../../simulation/factories.ts";
import { referenceModel } from "../reference/models.ts";
import { cpuLibrary } from "./library.ts";
import { expectRefusal } from "./refusal.ts";

const library = cpuLibrary();
const dir = mkdtempSync(join(tmpdir(), "bunting-native-"));
afterAll(() => rmSync(dir, { recursive: true }));
const folder = openModelFolder(referenceModel("qwen3").dir);
const options = { compute: "bf16", isa: "auto", threads: 1, contextMax: null } as const;
const limits = {
  threads: 1,
  pages: 8,
  pageTokens: PAGE_TOKENS,
  stepTokensMax: 64,
  stepChunksMax: 4,
  topLogprobsMax: 2,
};

const greedyStep = (tokens: readonly number[]): Step => ({
  number: 1,
  moves: [],
  chunks: [
    {
      sequence: 1 as SequenceId,
      start: 0,
      tokens: Int32Array.from(tokens),
      pages: Int32Array.from({ length: Math.ceil(tokens.length / PAGE_TOKENS) }, (_, i) => i),
      samples: [
        {
          afterIndex: tokens.length - 1,
          sampling: sampling(),
          position: 0,
          banned: [],
          seen: null,
          allowed: null,
        },
      ],
      adapter: 0,
    },
  ],
});

describe("a library", () => {
  test("that does not exist, or is none, is named", () => {
    const missing = join(dir, "missing.so");
    expectRefusal(() => openLibrary(missing), "io", `the engine library ${missing} cannot be loaded`);
    const text = join(dir, "text.so");
    writeFileSync(text, "not a library");
    expectRefusal(() => openLibrary(text), "io", `the engine library ${text} cannot be loaded`);
  });

  test.skipIf(Bun.which("c++") === null)("of another version is not used", () => {
    const source = join(dir, "other.cpp");
    const other = join(dir, "other.so");
    writeFileSync(source, 'extern "C" int bunting_abi_version() { return 99; }\n');
    expect(Bun.spawnSync(["c++", "-shared", "-fPIC", "-o", other, source]).exitCode).toBe(0);
    expectRefusal(
      () => openLibrary(other),
      "invalid",
      `${other} speaks version 99 of the engine interface, this program version`,
    );
  });

  test("and a model may lie under any name", () => {
    const odd = join(dir, "bücher & 模型 🦜");
    cpSync(folder.dir, odd, { recursive: true });
    const path = join(odd, "библиотека.so");
    copyFileSync(library.path, path);
    const opened = openLibrary(path);
    closeNativeModel(
      opened,
      openNativeModel(opened, openModelFolder(odd), options, () => undefined),
    );
  });
});

describe("the machine", () => {
  test("is described plausibly", () => {
    const machine = library.machineProbe();
    expect(isaNames).toContain(machine.isaBest);
    expect(isaNames).toContain(machine.isaBuilt);
    expect(machine.cores).toBeGreaterThanOrEqual(1);
    expect(machine.memoryBytes).toBeGreaterThan(2 ** 28);
    expect(machine.memoryFreeBytes).toBeGreaterThan(0);
    expect(machine.memoryFreeBytes).toBeLessThanOrEqual(machine.memoryBytes);
    expect(machine.processor).toMatch(/^\S.*$/);
    expect(machine.processor).not.toContain("\0");
  });
});

describe("a model", () => {
  test("reports its progress in bytes, up to all of them", () => {
    const seen: (readonly [number, number])[] = [];
    const model = openNativeModel(library, folder, options, (done, total) => seen.push([done, total]));
    closeNativeModel(library, model);
    const total = seen[0]![1];
    expect(seen).toHaveLength(folder.tensors.length);
    expect(seen.every(([done, all], i) => all === total && done > (seen[i - 1]?.[0] ?? 0))).toBe(true);
    expect(seen.at(-1)).toEqual([total, total]);
    expect(total).toBeLessThanOrEqual(folder.weightFilesBytes);
  });

  test("is what its plan says, at the context that is served", () => {
    const { shape } = folder.config;
    const contextMax = 64;
    const model = openNativeModel(library, folder, { ...options, contextMax }, () => undefined);
    const plan = library.modelPlan(servedShape(shape, contextMax), options, PAGE_TOKENS);
    expect(model).toMatchObject({ ...plan, contextMax, vocabSize: shape.vocab, isa: bestIsa(library) });
    const keysAndValues = 2 * shape.layers.length * shape.kvHeads * shape.headSize * PAGE_TOKENS;
    expect(plan.pageBytes).toBe(keysAndValues * 2);
    // RoPE tables are as long as the context.
    const longer = { ...shape, contextMax: 100_000 };
    expect(plan.weightBytes).toBeLessThan(library.modelPlan(longer, options, PAGE_TOKENS).weightBytes);
    const { workspaceBytes, copyBytes } = library.enginePlan(shape, options, limits);
    expect(workspaceBytes).toBeGreaterThan(0);
    expect(copyBytes).toBe(0);
    closeNativeModel(library, model);
  });

  test("of an impossible shape or for a missing instruction set is refused", () => {
    const shape = { ...folder.config.shape, kvHeads: 3 };
    expectRefusal(() => library.modelOpen(shape, options), "invalid", "key-value heads do not divide");
    expectRefusal(() => library.modelPlan(shape, options, 16), "invalid", "key-value heads do not divide");
    expectRefusal(() => library.modelPlan(folder.config.shape, options, 64), "invalid", "pages of 64 tokens");
    const future = { ...options, threads: 0 };
    expectRefusal(() => library.modelOpen(folder.config.shape, future), "invalid", "threads is 0");
  });

  test("larger than any memory is refused before a byte is read", () => {
    const shape = {
      ...folder.config.shape,
      ...{ layers: Array.from({ length: 4096 }, () => plainLayer), hidden: 1 << 18, feedForward: 1 << 20 },
    };
    expectRefusal(() => library.modelOpen(shape, options), "noMemory", "for the model's weights");
  });

  test("lacking a tensor is not opened", () => {
    const tensors = folder.tensors.filter(({ name }) => name !== "model.layers.1.mlp.up_proj.weight");
    expectRefusal(
      () => openNativeModel(library, { ...folder, tensors }, options, () => undefined),
      "invalid",
      "the model is not complete: up of layer 1 is missing",
    );
  });
});

describe("an engine", () => {
  const model = openNativeModel(library, folder, options, () => undefined);
  afterAll(() => closeNativeModel(library, model));

  test("with limits it cannot have is refused", () => {
    expectRefusal(() => openCpuDevice(library, model, { ...limits, pages: 0 }), "invalid", "pages is 0");
    expectRefusal(
      () => openCpuDevice(library, model, { ...limits, devices: [0] }),
      "invalid",
      "1 devices; a CPU engine takes none",
    );
  });

  test("refuses a step that is wrong, loudly, and runs the next", () => {
    const device = openCpuDevice(library, model, limits);
    const start = (step: Step) => device.start(step, () => undefined);
    const { vocabSize } = device.spec;
    expect(() => start(greedyStep([vocabSize]))).toThrow(InvariantError);
    expect(() => start(greedyStep([vocabSize]))).toThrow(
      `the engine refused a step: step block: token ${vocabSize} at row 0`,
    );
    expect(device.inFlight).toBe(false);
    expect(() => device.wait()).toThrow("there is no step to wait for");
    start(greedyStep([1, 2, 3]));
    expect(() => device.deliver()).toThrow("there is no computed step to deliver");
    device.wait();
    device.wait();
    device.deliver();
    expect(device.logits()).toHaveLength(vocabSize);
    device.close();
  });

  test("gives up a step that gives way, where it is told to, and computes it again to the same bits", () => {
    const device = openCpuDevice(library, model, limits);
    const way = new Int32Array(new SharedArrayBuffer(12)).subarray(2);
    const run = (step: Step): StepResult["kind"] => {
      const results: StepResult["kind"][] = [];
      device.start(step, ({ kind }) => results.push(kind));
      device.wait(way);
      device.deliver();
      return results[0]!;
    };
    const step = greedyStep([5, 6, 7]);
    expect(device.spec.abortPoints).toBe(folder.config.shape.layers.length);
    expect(run({ ...step, isAbortable: true })).toBe("done");
    const logits = device.logits();
    way[0] = 1;
    expect(run({ ...step, isAbortable: true })).toBe("aborted");
    expect(device.logits()).toHaveLength(0);
    expect(run(step)).toBe("done");
    expect(device.logits()).toEqual(logits);
    device.close();
  });

  test("shares its model with others, at the same time", () => {
    const devices = [openCpuDevice(library, model, limits), openCpuDevice(library, model, limits)];
    for (const device of devices) device.start(greedyStep([5, 6, 7]), () => undefined);
    for (const device of devices) device.wait();
    for (const device of devices) device.deliver();
    expect(devices[0]!.logits()).toEqual(devices[1]!.logits());
    for (const device of devices) device.close();
  });
});
