/**
 * Scheduler on an emulated GPU whose pages leave it for the host's memory: every sequence draws the tokens that it draws
 * alone. Prompts fork, evict each other's pages, load them, are aborted, and outlive the engine. A spoilt copy shows.
 */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SeededRandom } from "../../base/random.ts";
import type { TokenId } from "../../base/token.ts";
import type { NativeDevice } from "../../gpu/native/device.ts";
import { closeNativeModel, type NativeModel, openGpuDevice, openNativeModel } from "../../gpu/native/open.ts";
import { openModelFolder } from "../../model/folder.ts";
import { type HostMemory, HostTier } from "../../scheduler/cache/host-tier.ts";
import type { SequenceId } from "../../scheduler/core.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import { Engine } from "../../scheduler/engine/engine.ts";
import type { EngineReport } from "../../scheduler/messages.ts";
import { PageIds } from "../../server/kv-disk/page-ids.ts";
import { NativePlaces } from "../../server/kv-host/native-places.ts";
import { sequenceSpec } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";
import { writeFamily } from "../reference/families.ts";
import { emulatedLibrary } from "./library.ts";

setDefaultTimeout(240_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-kv-host-engine-"));
const workerUrl = new URL("../../server/kv-host/worker.ts", import.meta.url).href;
const library = emulatedLibrary();
const pageTokens = 16;
const VOCABULARY = 100;
const TOKENS = 3;
let model: NativeModel;

beforeAll(() => {
  writeFamily("llama-biases", join(scratch, "llama"));
  const options = { compute: "bf16", isa: "auto", threads: 1, contextMax: null, packedFolders: [] } as const;
  model = openNativeModel(library, openModelFolder(join(scratch, "llama")), options, () => {});
});
afterAll(() => {
  closeNativeModel(library, model);
  rmSync(scratch, { recursive: true, force: true });
});

/** Engine with few pages, and maybe places in the host's memory, on the thread of the test. */
class Life {
  readonly tokens = new Map<SequenceId, TokenId[]>();
  readonly ended = new Set<SequenceId>();
  last: EngineReport | null = null;
  readonly #device: NativeDevice;
  readonly #places: NativePlaces | null;
  readonly #engine: Engine;
  readonly #clock = new ManualClock();
  readonly #bell = new Int32Array(new SharedArrayBuffer(12));

  /** `places`: 0 for none. `spoil` stands between the tier and its memory. */
  constructor(pages: number, places: number, spoil: (memory: HostMemory) => HostMemory = (memory) => memory) {
    const limits = { threads: 1, pages, pageTokens, stepTokensMax: 64, stepChunksMax: 4, topLogprobsMax: 0 };
    this.#device = openGpuDevice(library, model, limits, 0, () => {});
    const { pageBytes, stateBytes } = model;
    const setup = { workerUrl, places, pageBytes, stateBytes, pageTokens };
    this.#places = places === 0 ? null : new NativePlaces(setup, 0, this.#bell.buffer);
    this.#places?.attach(this.#device);
    const tier = this.#places && new HostTier(spoil(this.#places), new PageIds("", pageTokens, null));
    // Computing costs so much that every load is worth it.
    const report = (told: EngineReport): void => this.#take(told);
    this.#engine = new Engine(
      this.#device,
      this.#clock,
      { integrity: "always" },
      report,
      linearCost(50, 5),
      tier,
    );
  }

  submit(id: number, prompt: readonly TokenId[]): void {
    this.tokens.set(id as SequenceId, []);
    const sequence = { ...sequenceSpec(prompt, TOKENS), id: id as SequenceId };
    this.#engine.receive({ kind: "submit", sequence });
  }

  abort(id: number): void {
    this.#engine.receive({ kind: "abort", sequence: id as SequenceId });
  }

  /** Goes on until everything has ended and nothing is left to be stored; or for `turns`. */
  run(turns = Number.POSITIVE_INFINITY): void {
    for (let turn = 0; turn < turns; turn += 1) {
      const rings = Atomics.load(this.#bell, 0);
      if (this.#device.inFlight) {
        this.#device.wait();
        this.#device.deliver();
      }
      this.#places?.receive();
      this.#engine.run();
      if (this.#device.inFlight) continue;
      const { wakeMs } = this.#engine;
      if (wakeMs !== null) this.#clock.advance(Math.max(0, wakeMs - this.#clock.nowMs()));
      else if (!this.#engine.busy) return;
      else if (Atomics.wait(this.#bell, 0, rings, 20_000) === "timed-out") throw new Error("nothing happens");
    }
  }

  close(): void {
    this.#places?.close();
    this.#device.close();
  }

  #take(report: EngineReport): void {
    this.last = report;
    for (const [index, id] of report.sequences.entries()) this.tokens.get(id)!.push(report.tokens[index]!);
    for (const { sequence } of report.finished) this.ended.add(sequence);
  }
}

/** Prompts of a page and a half to four pages, which share their beginnings. */
function promptsOf(seed: number, count: number): TokenId[][] {
  const random = new SeededRandom(seed);
  const draw = (): TokenId => 3 + Math.floor(random.unit() * (VOCABULARY - 3));
  const prompts: TokenId[][] = [];
  for (let index = 0; index < count; index += 1) {
    const stem =
      index < 2
        ? []
        : prompts[Math.floor(random.unit() * index)]!.slice(0, 8 + 8 * Math.floor(5 * random.unit()));
    const length = 24 + Math.floor(random.unit() * 40);
    prompts.push([...stem, ...Array.from({ length: Math.max(4, length - stem.length) }, draw)]);
  }
  return prompts;
}

const prompts = promptsOf(5, 6);
/** Tokens of each prompt alone, on an engine that shares nothing. */
const alone = (): TokenId[][] => {
  const life = new Life(64, 0);
  for (const [id, prompt] of prompts.entries()) life.submit(id, prompt);
  life.run();
  life.close();
  return prompts.map((_, id) => life.tokens.get(id as SequenceId)!);
};

/** Asks for the prompts in turn, so that each comes back after others took its pages. */
function play(life: Life, rounds: number, expected: readonly TokenId[][] | null): void {
  for (let id = 0; id < rounds * prompts.length; id += 1) {
    const which = (id * 5) % prompts.length;
    life.submit(id, prompts[which]!);
    const isAborted = id % 7 === 6;
    if (isAborted) {
      life.run(1 + (id % 3));
      life.abort(id);
    }
    if (id % 2 === 1) life.run();
    if (expected === null) continue;
    const drawn = life.tokens.get(id as SequenceId)!;
    if (life.ended.has(id as SequenceId) && !isAborted) expect(drawn).toEqual([...expected[which]!]);
  }
  life.run();
  if (expected === null) return;
  for (const [id, drawn] of life.tokens)
    if (drawn.length === TOKENS) expect(drawn).toEqual([...expected[(id * 5) % prompts.length]!]);
}

test("tokens are those of a computation, through evictions, loads, forks, aborts and the loss of the engine", () => {
  const expected = alone();
  const first = new Life(10, 24);
  play(first, 3, expected);
  const { tierLoadedPagesTotal, tierHostPagesTotal, evictedPagesTotal } = first.last!.load;
  expect(evictedPagesTotal).toBeGreaterThan(10);
  expect(tierLoadedPagesTotal).toBeGreaterThan(5);
  expect(tierHostPagesTotal).toBe(tierLoadedPagesTotal);
  // The engine goes with loads and stores in flight.
  first.submit(1000, prompts[0]!);
  first.submit(1001, prompts[3]!);
  first.run(2);
  first.close();
  const second = new Life(10, 24);
  play(second, 1, expected);
  second.close();
});

test("a copy that brings the page of another place is found", () => {
  const expected = alone();
  const swapped = (memory: HostMemory): HostMemory => ({
    get costs() {
      return memory.costs;
    },
    places: memory.places,
    sendingMax: memory.sendingMax,
    sendPages: (pages, places) => memory.sendPages(pages, places),
    sendPieces: (slot, pieces, places) => memory.sendPieces(slot, pieces, places),
    settle: (done) => memory.settle(done),
    copyUp: (what, done) => memory.copyUp({ ...what, places: what.places.map((place) => place ^ 1) }, done),
  });
  const life = new Life(10, 24, swapped);
  play(life, 2, null);
  const wrong = [...life.tokens].filter(
    ([id, drawn]) => drawn.length === TOKENS && drawn.join() !== expected[(id * 5) % prompts.length]!.join(),
  );
  expect(wrong.length).toBeGreaterThan(0);
  life.close();
});
