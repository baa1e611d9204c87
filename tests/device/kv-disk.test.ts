/** Pages on disk: a prompt continues from them with the same bits, in another engine and after a restart. */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import type { NativeLibrary } from "../../gpu/native.ts";
import { openModelFolder } from "../../model/folder.ts";
import type { ModelFolder } from "../../model/model-folder.ts";
import type { PagesOf } from "../../scheduler/cache/lower-tier.ts";
import type { PageId, StateSlot } from "../../scheduler/core.ts";
import { DiskTier } from "../../server/kv-disk/disk-tier.ts";
import { familyPrompt, writeFamily } from "../reference/families.ts";
import { applyDamage, damage } from "../support/damage.ts";
import { runs } from "../support/property.ts";
import { sameBits } from "./compare.ts";
import { cpuLibrary, emulatedLibrary } from "./library.ts";
import { pageTokens, Rig, type RigOptions } from "./rig.ts";

setDefaultTimeout(60_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-kv-disk-"));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));
const workerUrl = new URL("../../server/kv-disk/worker.ts", import.meta.url).href;
const longPrompt = [...familyPrompt, ...familyPrompt].slice(0, 70);
const sharing = { key: "0:", publicKey: "0", publicTokens: 0 };

function modelOf(family: string, dir: string): ModelFolder {
  writeFamily(family, dir);
  return openModelFolder(dir);
}

/** Tier on disk of a rig, as an engine's thread has it. */
class Disk {
  readonly tier: DiskTier;
  readonly #bell = new Int32Array(new SharedArrayBuffer(12));

  constructor(rig: Rig, root: string, key: Uint8Array | null = null) {
    const setup = { workerUrl, root, model: "m", identity: "01".repeat(32), bytesMax: 2 ** 26, engines: 1 };
    this.tier = new DiskTier({ ...setup, ...rig.sizes, pageTokens, key }, 0, this.#bell.buffer);
    this.tier.attach(rig.memory);
  }

  /** Takes answers of the thread until the condition holds. */
  until(holds: () => boolean): void {
    for (;;) {
      const rings = Atomics.load(this.#bell, 0);
      this.tier.receive();
      if (holds()) return;
      if (Atomics.wait(this.#bell, 0, rings, 20_000) === "timed-out") throw new Error("the thread is silent");
    }
  }

  store(prompt: PagesOf, pages: readonly PageId[]): void {
    expect(this.tier.store(prompt, 0, pages)).toBe(pages.length);
    this.until(() => this.tier.find(prompt, 0) >= pages.length);
  }

  /** Stores the state after all pages of the prompt. */
  storeState(prompt: PagesOf, slot: StateSlot): void {
    const end = prompt.tokens.length / pageTokens;
    const { statePages } = this.tier.costs;
    const half = Math.ceil(statePages / 2);
    expect(this.tier.storeState(prompt, end, slot, 0, half)).toBe(half);
    expect(this.tier.findState(prompt, 0, end)).toBe(0);
    expect(this.tier.storeState(prompt, end, slot, half, statePages - half)).toBe(statePages - half);
    this.until(() => this.tier.findState(prompt, 0, end) === end);
  }

  load(prompt: PagesOf, pages: readonly PageId[], slot: StateSlot | null = null): number {
    let right: number | null = null;
    this.tier.load(prompt, 0, pages, slot, (count) => {
      right = count;
    });
    expect(right).toBeNull();
    this.until(() => right !== null);
    return right!;
  }
}

interface Way {
  readonly name: string;
  readonly family: string;
  readonly library: () => NativeLibrary;
  readonly options: Partial<RigOptions>;
}

const ways: readonly Way[] = [
  { name: "bf16", family: "gemma2", library: cpuLibrary, options: {} },
  { name: "f32", family: "gemma2", library: cpuLibrary, options: { compute: "f32" } },
  { name: "int8", family: "gemma2", library: cpuLibrary, options: { kv: "int8" } },
  { name: "int4", family: "gemma2", library: cpuLibrary, options: { kv: "int4" } },
  { name: "shared layers", family: "gemma4", library: cpuLibrary, options: {} },
  { name: "latents", family: "deepseek-v2", library: cpuLibrary, options: {} },
  { name: "emulated GPU", family: "gemma2", library: emulatedLibrary, options: {} },
];

describe.each(ways)("pages in $name", ({ name, family, library, options }) => {
  const root = join(scratch, name);
  const folder = modelOf(family, join(scratch, `${name} model`));
  const tokens = longPrompt;
  const prompt: PagesOf = { sharing, tokens };
  let cold: Float32Array;

  beforeAll(() => {
    const rig = new Rig(library(), folder, options);
    const stream = rig.stream(tokens);
    rig.step([{ stream, count: 64, isUndrawn: true }]);
    const disk = new Disk(rig, root);
    disk.store(prompt, stream.pages.slice(0, 4));
    cold = rig.step([{ stream, count: 6 }])[0]!.logits;
    disk.tier.close();
    rig.close();
  });

  test("give the same bits in an engine that opens later", () => {
    const rig = new Rig(library(), folder, options);
    const disk = new Disk(rig, root);
    expect(disk.tier.find(prompt, 0)).toBe(4);
    expect(disk.tier.find(prompt, 2)).toBe(4);
    const stream = rig.filled(tokens, 64);
    expect(disk.load(prompt, stream.pages)).toBe(4);
    expect(sameBits(rig.step([{ stream, count: 6 }])[0]!.logits, cold)).toBe(true);
    disk.tier.close();
    rig.close();
  });

  test("are not found under another key or after other tokens", () => {
    const rig = new Rig(library(), folder, options);
    const disk = new Disk(rig, root);
    expect(disk.tier.find({ sharing: { ...sharing, key: "0:other" }, tokens }, 0)).toBe(0);
    const changed = tokens.with(20, tokens[21]!);
    expect(disk.tier.find({ sharing, tokens: changed }, 0)).toBe(1);
    disk.tier.close();
    rig.close();
  });
});

describe.each<Way>([
  { name: "delta states", family: "qwen3-5", library: cpuLibrary, options: {} },
  { name: "states beside heads", family: "falcon-h1", library: cpuLibrary, options: { compute: "f32" } },
  { name: "short convolutions", family: "lfm2", library: cpuLibrary, options: {} },
  { name: "delta states on an emulated GPU", family: "qwen3-5", library: emulatedLibrary, options: {} },
])("$name", ({ name, family, library, options }) => {
  const root = join(scratch, name);
  const folder = modelOf(family, join(scratch, `${name} model`));
  const tokens = longPrompt;
  const prompt: PagesOf = { sharing, tokens: tokens.slice(0, 64) };
  let cold: Float32Array;

  beforeAll(() => {
    const rig = new Rig(library(), folder, options);
    const stream = rig.stream(tokens);
    rig.step([{ stream, count: 64, isUndrawn: true, save: 64 }]);
    const disk = new Disk(rig, root);
    disk.store(prompt, stream.pages.slice(0, 4));
    disk.storeState(prompt, stream.saved.get(64)!);
    cold = rig.step([{ stream, count: 6 }])[0]!.logits;
    disk.tier.close();
    rig.close();
  });

  test("give the same bits in an engine that opens later", () => {
    const rig = new Rig(library(), folder, options);
    const disk = new Disk(rig, root);
    expect(disk.tier.find(prompt, 0)).toBe(4);
    expect(disk.tier.findState(prompt, 0, 4)).toBe(4);
    const stream = rig.filled(tokens, 64);
    expect(disk.load(prompt, stream.pages, stream.begins)).toBe(5);
    expect(sameBits(rig.step([{ stream, count: 6 }])[0]!.logits, cold)).toBe(true);
    disk.tier.close();
    rig.close();
  });

  test("have the same bits after damage to the files, or are absent", () => {
    const rig = new Rig(library(), folder, options);
    fc.assert(
      fc.property(fc.array(damage, { minLength: 1, maxLength: 3 }), (damages) => {
        const copy = `${root} damaged`;
        cpSync(root, copy, { recursive: true });
        const engine = join(copy, readdirSync(copy)[0]!, "engine-0");
        for (const one of damages) applyDamage(engine, one);
        const disk = new Disk(rig, copy);
        const stream = rig.filled(tokens, 64);
        const right = disk.load(prompt, stream.pages, stream.begins);
        if (disk.tier.findState(prompt, 0, 4) === 0) expect(right).toBeLessThan(5);
        if (right === 5) expect(sameBits(rig.step([{ stream, count: 6 }])[0]!.logits, cold)).toBe(true);
        rig.free(stream);
        disk.tier.close();
        rmSync(copy, { recursive: true });
      }),
      runs(10),
    );
    rig.close();
  });

  test("are not found under another key, after other tokens, or at another border", () => {
    const rig = new Rig(library(), folder, options);
    const disk = new Disk(rig, root);
    expect(disk.tier.findState({ ...prompt, sharing: { ...sharing, key: "0:other" } }, 0, 4)).toBe(0);
    const changed = prompt.tokens as number[];
    expect(disk.tier.findState({ sharing, tokens: changed.with(60, changed[61]!) }, 0, 4)).toBe(0);
    expect(disk.tier.findState(prompt, 0, 3)).toBe(0);
    disk.tier.close();
    rig.close();
  });
});

test("a second server on a folder reads its pages and writes none", () => {
  const folder = modelOf("gemma2", join(scratch, "second model"));
  const [first, second] = [new Rig(cpuLibrary(), folder), new Rig(cpuLibrary(), folder)];
  const stream = first.stream(longPrompt);
  first.step([{ stream, count: 64, isUndrawn: true }]);
  const prompt: PagesOf = { sharing, tokens: stream.tokens };
  const root = join(scratch, "second");
  const writer = new Disk(first, root);
  writer.store(prompt, stream.pages.slice(0, 2));
  const reader = new Disk(second, root);
  const copy = second.filled(stream.tokens, 64);
  expect(reader.load(prompt, copy.pages)).toBe(2);
  expect(reader.tier.store(prompt, 0, copy.pages)).toBe(0);
  writer.tier.close();
  reader.tier.close();
  first.close();
  second.close();
});

test("encrypted pages are found with their key only, in a private folder", () => {
  const folder = modelOf("gemma2", join(scratch, "encrypted model"));
  const rig = new Rig(cpuLibrary(), folder);
  const stream = rig.stream(longPrompt);
  rig.step([{ stream, count: 64, isUndrawn: true }]);
  const prompt: PagesOf = { sharing, tokens: stream.tokens };
  const root = join(scratch, "encrypted");
  const key = Buffer.alloc(32, 7);
  const withKey = new Disk(rig, root, key);
  withKey.store(prompt, stream.pages);
  withKey.tier.close();
  const engine = join(root, readdirSync(root)[0]!, "engine-0");
  expect(statSync(engine).mode & 0o777).toBe(0o700);
  for (const [other, pages] of [
    [Buffer.alloc(32, 8), 0],
    [null, 0],
    [key, 4],
  ] as const) {
    const disk = new Disk(rig, root, other);
    expect(disk.tier.find(prompt, 0)).toBe(pages);
    disk.tier.close();
  }
  rig.close();
});

test("a folder that cannot be made is a tier without pages", () => {
  const rig = new Rig(cpuLibrary(), modelOf("gemma2", join(scratch, "unmade model")));
  const stream = rig.filled(longPrompt, 64);
  const prompt: PagesOf = { sharing, tokens: longPrompt };
  const root = join(scratch, "unmade");
  writeFileSync(root, "a file");
  const disk = new Disk(rig, root);
  expect(disk.tier.find(prompt, 0)).toBe(0);
  expect(disk.tier.store(prompt, 0, stream.pages)).toBe(0);
  expect(disk.load(prompt, stream.pages)).toBe(0);
  disk.tier.close();
  rig.close();
});
