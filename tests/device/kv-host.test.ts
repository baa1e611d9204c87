/** Pages in the host's memory of a GPU: copied beside steps, and used again with the same bits. */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openModelFolder } from "../../model/folder.ts";
import type { ModelFolder } from "../../model/model-folder.ts";
import type { PagesOf } from "../../scheduler/cache/lower-tier.ts";
import type { PageId, StateSlot } from "../../scheduler/core.ts";
import { type EngineTier, openTier } from "../../server/engines/engine-tier.ts";
import type { EngineSetup } from "../../server/engines/protocol.ts";
import { familyPrompt, writeFamily } from "../reference/families.ts";
import { sameBits } from "./compare.ts";
import { emulatedLibrary } from "./library.ts";
import { pageTokens, Rig, type Stream } from "./rig.ts";

setDefaultTimeout(60_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-kv-host-"));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));
const urlOf = (folder: string): string => new URL(`../../server/${folder}/worker.ts`, import.meta.url).href;
const longPrompt = [...familyPrompt, ...familyPrompt].slice(0, 70);
const sharing = { key: "0:", publicKey: "0", publicTokens: 0 };

function modelOf(family: string): ModelFolder {
  const dir = join(scratch, family);
  writeFamily(family, dir);
  return openModelFolder(dir);
}

/** Lower tiers of a rig, as an engine's thread has them. */
class Tiers {
  readonly counts = { stored: 0, read: 0, dropped: 0 };
  readonly #opened: EngineTier;
  readonly #bell = new Int32Array(new SharedArrayBuffer(12));

  constructor(rig: Rig, places: number, diskRoot: string | null = null) {
    const sizes = { ...rig.sizes, pageTokens };
    const disk = { root: diskRoot!, model: "m", identity: "01".repeat(32), bytesMax: 2 ** 26, engines: 1 };
    const device = {
      kind: "gpu",
      host: { ...sizes, workerUrl: urlOf("kv-host"), places },
      disk: diskRoot === null ? null : { ...sizes, ...disk, workerUrl: urlOf("kv-disk"), key: null },
    };
    const start = {
      setup: { device } as unknown as EngineSetup,
      engine: 0 as never,
      doorbell: this.#bell.buffer,
    };
    const onHost = (counts: typeof this.counts): void => {
      for (const name of Object.keys(counts) as (keyof typeof counts)[]) this.counts[name] += counts[name];
    };
    this.#opened = openTier(start, { onDisk: () => {}, onHost })!;
    this.#opened.attach(rig.memory);
  }

  get tier(): EngineTier["tier"] {
    return this.#opened.tier;
  }

  /** Takes answers of the threads until the condition holds. */
  until(holds: () => boolean): void {
    for (;;) {
      const rings = Atomics.load(this.#bell, 0);
      this.#opened.receive();
      if (holds()) return;
      if (Atomics.wait(this.#bell, 0, rings, 20_000) === "timed-out")
        throw new Error("the threads are silent");
    }
  }

  load(prompt: PagesOf, pages: readonly PageId[], slot: StateSlot | null = null): readonly [number, number] {
    let found: readonly [number, number] | null = null;
    this.tier.load(prompt, 0, pages, slot, (right, fromHost) => {
      found = [right, fromHost];
    });
    this.until(() => found !== null);
    return found!;
  }

  close(): void {
    this.#opened.close();
  }
}

/** Computes the first 64 tokens of the prompt, with a checkpoint behind them if there are states. */
function computed(rig: Rig): Stream {
  const stream = rig.stream(longPrompt);
  rig.step([{ stream, count: 64, isUndrawn: true, save: 64 }]);
  return stream;
}

/** Fills the pages, and the checkpoint, of a stream with those of another prompt, in a step. */
function overwrite(rig: Rig, { pages, saved }: Stream): void {
  const begins = saved.get(64) ?? null;
  const other = { ...rig.stream(longPrompt.toReversed()), pages: [...pages], slot: begins };
  rig.step([{ stream: other, count: 64, isUndrawn: true }]);
}

const prompt: PagesOf = { sharing, tokens: longPrompt.slice(0, 64) };

describe.each([
  { family: "gemma2", hasStates: false },
  { family: "qwen3-5", hasStates: true },
])("$family", ({ family, hasStates }) => {
  const folder = modelOf(family);
  const open = (): Rig => new Rig(emulatedLibrary(), folder);
  let expected: Float32Array;

  beforeAll(() => {
    const rig = open();
    expected = rig.step([{ stream: computed(rig), count: 6 }])[0]!.logits;
    rig.close();
  });

  /** Stores a stream's pages and state, runs `after` at once, and continues from the copies elsewhere. */
  function through(tiers: Tiers, rig: Rig, after: (stream: Stream) => void): Float32Array {
    const stream = computed(rig);
    expect(tiers.tier.store(prompt, 0, stream.pages)).toBe(4);
    const { statePages } = tiers.tier.costs;
    if (hasStates)
      expect(tiers.tier.storeState(prompt, 4, stream.saved.get(64)!, 0, statePages)).toBe(statePages);
    after(stream);
    tiers.until(() => (hasStates ? tiers.tier.findState(prompt, 0, 4) : tiers.tier.find(prompt, 0)) === 4);
    const again = rig.filled(longPrompt, 64);
    expect(tiers.load(prompt, again.pages, again.begins)).toEqual([hasStates ? 5 : 4, 4]);
    const { logits } = rig.step([{ stream: again, count: 6 }])[0]!;
    return logits;
  }

  test("a prompt continues from copies with the same bits, though a step wrote its pages at once", () => {
    const rig = open();
    const tiers = new Tiers(rig, 64);
    expect(
      sameBits(
        through(tiers, rig, (stream) => overwrite(rig, stream)),
        expected,
      ),
    ).toBe(true);
    tiers.close();
    rig.close();
  });

  test("what the host's memory dropped comes up from the disk below, with the same bits", () => {
    const rig = open();
    const root = join(scratch, `${family} disk`);
    const before = new Tiers(rig, 64, root);
    through(before, rig, () => {});
    before.close();
    rig.close();
    const later = open();
    const tiers = new Tiers(later, 64, root);
    tiers.until(() => (hasStates ? tiers.tier.findState(prompt, 0, 4) : tiers.tier.find(prompt, 0)) === 4);
    expect(tiers.tier.loadPageMs(prompt, 0, 4)).toBeGreaterThan(tiers.tier.costs.loadPageMs);
    const again = later.filled(longPrompt, 64);
    expect(tiers.load(prompt, again.pages, again.begins)).toEqual([hasStates ? 5 : 4, 0]);
    expect(sameBits(later.step([{ stream: again, count: 6 }])[0]!.logits, expected)).toBe(true);
    // They are in the host's memory from now on.
    expect(tiers.load(prompt, later.filled(longPrompt, 64).pages)).toEqual([4, 4]);
    tiers.close();
    later.close();
  });
});
