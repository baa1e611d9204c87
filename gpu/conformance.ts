/**
 * Conformance suite of devices, run for each of them (tests/device). Devices that pass differ, for the
 * scheduler, only in their tokens and their speed.
 *
 * The device under test has at least 32 pages and a context of 6 pages. Its steps have up to 96 tokens in 4
 * chunks, with 12 draws and 96 hidden states. Its vocabulary has 100 tokens. If its model has recurrent
 * layers, it has at least 16 state slots.
 */
import { describe, expect, test } from "bun:test";
import { InvariantError } from "../base/assert.ts";
import type { TokenId } from "../base/token.ts";
import {
  type Chunk,
  type ChunkRow,
  type ChunkState,
  greedySampling,
  type PageId,
  type PageMove,
  type Sampled,
  type SampleRow,
  type Sampling,
  type SequenceId,
  type StateSlot,
  type Step,
  type StepResult,
} from "../scheduler/core.ts";
import type { Device } from "../scheduler/device.ts";

export interface DeviceUnderTest {
  readonly device: Device;
  /** Computes and delivers the step in flight, if there is one. */
  settle(): void;
  /** Raw logits of the last step's rows, concatenated; absent if the device has none. */
  logits?(): Float32Array;
}

const greedy = greedySampling;
const random: Sampling = { ...greedy, temperature: 1, topP: 0.95, seed: [7, 9] };
const generatedTokens = 6;

export function deviceConformance(name: string, open: () => DeviceUnderTest): void {
  /** Test body that runs `body` on a fresh device. */
  const on =
    (body: (driver: Driver) => void): (() => void) =>
    () => {
      const driver = new Driver(open());
      try {
        body(driver);
      } finally {
        driver.device.close();
      }
    };

  describe(`${name}: steps`, () => {
    test(
      "done is called once, and never from within start",
      on(({ device, settle, step }) => {
        const results: StepResult[] = [];
        device.start(step([chunk(1, [1, 2, 3], 0, [0], row())]), (result) => results.push(result));
        expect(results).toHaveLength(0);
        settle();
        settle();
        expect(results).toHaveLength(1);
        expect(results[0]).toMatchObject({ kind: "done", sampled: [{ kind: "token", sequence: 1 }] });
        expect((results[0] as { deviceMs: number }).deviceMs).toBeGreaterThanOrEqual(0);
      }),
    );

    test(
      "done may start the next step",
      on(({ device, settle, step }) => {
        let finished = 0;
        const again = (): void => {
          finished += 1;
          if (finished < 3) device.start(step([chunk(1, [1], 0, [finished], row())]), again);
        };
        device.start(step([chunk(1, [1], 0, [0], row())]), again);
        for (let i = 0; i < 3; i += 1) settle();
        expect(finished).toBe(3);
      }),
    );

    test(
      "one at a time, and none after close",
      on(({ device, settle, step }) => {
        const start = (): void => device.start(step([chunk(1, [1], 0, [0], row())]), () => undefined);
        start();
        expect(start).toThrow(InvariantError);
        settle();
        start();
        settle();
        device.close();
        expect(start).toThrow(InvariantError);
        device.close();
      }),
    );

    test(
      "a step in flight is forgotten by close",
      on(({ device, settle, step }) => {
        let isDone = false;
        device.start(step([chunk(1, [1], 0, [0], row())]), () => {
          isDone = true;
        });
        device.close();
        settle();
        expect(isDone).toBe(false);
      }),
    );

    test(
      "rows come in the order of the chunks that sample",
      on((driver) => {
        const wanted = [true, false, true, true];
        const sampled = driver.run(
          wanted.map((isSampled, i) => chunk(40 - i, [i + 1, i + 2], 0, [i], isSampled ? row() : null)),
        );
        expect(sampled.map(({ sequence }) => sequence as number)).toEqual([40, 38, 37]);
      }),
    );

    test("several rows of a chunk are those of single steps", on(expectRowsOfSingleSteps));

    test(
      "without a chunk, which copies pages alone",
      on((driver) => {
        const { pageTokens } = driver.device.spec;
        const half = pageTokens / 2;
        driver.run([driver.saving(chunk(1, prompt(half), 0, [0], null), half)]);
        expect(driver.run([], [moveOf(0, 1, half)])).toEqual([]);
        const next = (page: number): readonly Sampled[] =>
          driver.run([chunk(2, [7, 8], half, [page], row(random))]);
        expect(next(1)).toEqual(next(0));
      }),
    );

    test(
      "as large as the spec allows",
      on((driver) => {
        const { pages, pageTokens, stepTokensMax, stepChunksMax, contextMax, states } = driver.device.spec;
        const many = Math.min(stepChunksMax, pages, stepTokensMax, states?.slots ?? stepChunksMax);
        expect(
          driver.run(Array.from({ length: many }, (_, i) => chunk(i, [i % 100], 0, [i], row()))),
        ).toHaveLength(many);
        const long = Math.min(stepTokensMax, contextMax, pages * pageTokens);
        expect(driver.run([chunk(0, prompt(long), 0, pagesFrom(0, long, pageTokens), row())])).toHaveLength(
          1,
        );
      }),
    );
  });

  describe.each([
    ["greedy", greedy],
    ["random", random],
  ])(`${name}: tokens of %s sampling do not depend on`, (_, sampling) => {
    const alone = (): TokenId[] => {
      let tokens: TokenId[] = [];
      on((driver) => {
        tokens = driver.generate({ sampling });
      })();
      return tokens;
    };

    test(
      "the device's past",
      on((driver) => {
        expect(driver.generate({ sampling })).toEqual(alone());
        expect(driver.generate({ sampling })).toEqual(alone());
      }),
    );

    test(
      "how the prompt is cut",
      on((driver) => {
        const whole = alone();
        for (let size = 1; size <= 17; size += 1) {
          expect(driver.generate({ sampling, chunkTokens: size })).toEqual(whole);
        }
      }),
    );

    test(
      "what else is in the step",
      on((driver) => {
        const whole = alone();
        for (const place of [0, 1, 2]) {
          expect(driver.generate({ sampling, chunkTokens: 7, company: 2, place })).toEqual(whole);
        }
      }),
    );

    test(
      "which pages it has",
      on((driver) => {
        const whole = alone();
        const { pages } = driver.device.spec;
        for (const stride of [3, 7, 11]) {
          const scattered = Array.from({ length: 6 }, (_, i) => (pages - 1 - i * stride) % pages);
          expect(driver.generate({ sampling, chunkTokens: 9, pages: scattered })).toEqual(whole);
        }
      }),
    );

    test(
      "whether its prefix was computed or copied",
      on((driver) => {
        const whole = alone();
        const { pageTokens } = driver.device.spec;
        for (const cached of [1, pageTokens - 1, pageTokens, pageTokens + 3]) {
          expect(driver.generate({ sampling, cachedTokens: cached })).toEqual(whole);
        }
      }),
    );
  });

  describe(`${name}: hidden states do not depend on`, () => {
    /** Hidden states of a 40-token prompt, computed in the given way. */
    const hiddenOf = (driver: Driver, way: HiddenWay): Float32Array[] => driver.hidden(way);
    const alone = (): Float32Array[] => {
      let hidden: Float32Array[] = [];
      on((driver) => {
        hidden = hiddenOf(driver, {});
      })();
      return hidden;
    };

    test(
      "how the prompt is cut, and which of them are wanted",
      on((driver) => {
        const whole = alone();
        expect(whole).toHaveLength(40);
        expect(new Set(whole.map((state) => state.join())).size).toBe(40);
        for (let size = 1; size <= 17; size += 4)
          expect(hiddenOf(driver, { chunkTokens: size })).toEqual(whole);
        for (const every of [3, 40]) {
          const some = whole.filter((_, i) => i % every === every - 1);
          expect(hiddenOf(driver, { chunkTokens: 11, every })).toEqual(some);
        }
      }),
    );

    test(
      "what else is in the step, and of it what is drawn",
      on((driver) => {
        const whole = alone();
        for (const place of [0, 1, 2]) {
          expect(hiddenOf(driver, { chunkTokens: 7, company: 2, place })).toEqual(whole);
        }
        const generated = driver.generate({
          sampling: greedy,
          chunkTokens: 7,
          company: 2,
          hiddenCompany: true,
        });
        expect(generated).toEqual(driver.generate({ sampling: greedy }));
      }),
    );

    test(
      "whether its prefix was computed or copied",
      on((driver) => {
        const whole = alone();
        const { pageTokens } = driver.device.spec;
        for (const cachedTokens of [1, pageTokens, pageTokens + 3]) {
          expect(hiddenOf(driver, { cachedTokens })).toEqual(whole.slice(cachedTokens));
        }
      }),
    );

    test(
      "draws of the same chunk",
      on((driver) => {
        const whole = alone();
        const { pageTokens, hidden } = driver.device.spec;
        const tokens = prompt(40);
        const samples = tokens.map(
          (_, afterIndex): ChunkRow =>
            afterIndex % 4 === 3 ? { ...row(random), afterIndex } : { wants: "hidden", afterIndex },
        );
        const mixed = driver.run([{ ...chunk(1, tokens, 0, pagesFrom(0, 40, pageTokens), null), samples }]);
        const draws = samples.filter(({ wants }) => wants === undefined);
        const drawn = driver.run([
          { ...chunk(1, tokens, 0, pagesFrom(0, 40, pageTokens), null), samples: draws },
        ]);
        expect(mixed.filter(({ kind }) => kind === "token")).toEqual([...drawn]);
        expect(mixed.flatMap((one) => (one.kind === "hidden" ? [one.hidden] : []))).toEqual(
          whole.filter((_, i) => i % 4 !== 3),
        );
        expect(whole[0]).toHaveLength(hidden!.size);
      }),
    );
  });

  const { states } = specOf(open);
  describe.skipIf(states === undefined)(`${name}: states`, () => {
    const whole = (): TokenId[] => {
      let tokens: TokenId[] = [];
      on((driver) => {
        tokens = driver.generate({ sampling: random });
      })();
      return tokens;
    };

    test(
      "are saved after any tokens of a chunk, and begun from later",
      on((driver) => {
        const { pageTokens } = driver.device.spec;
        const alone = whole();
        for (const cachedTokens of [1, 2, 5, pageTokens, pageTokens + 7, 39]) {
          for (const chunkTokens of [3, 40]) {
            expect(driver.generate({ sampling: random, cachedTokens, chunkTokens })).toEqual(alone);
          }
        }
      }),
    );

    test(
      "are not changed by those that begin from them, side by side and one after the other",
      on((driver) => {
        const { pageTokens } = driver.device.spec;
        const tokens = prompt(40);
        const page = pagesFrom(0, pageTokens, pageTokens);
        driver.run([
          driver.saving(chunk(1, tokens.slice(0, 30), 0, pagesFrom(0, 30, pageTokens), null), pageTokens),
        ]);
        const fork = (sequence: number): Chunk => {
          const own = pagesFrom(4 + 3 * (sequence % 4), 40 - pageTokens, pageTokens);
          return chunk(sequence, tokens.slice(pageTokens), pageTokens, [...page, ...own], row(random));
        };
        const sampledOf = (chunks: readonly Chunk[]): (TokenId | null)[] =>
          driver.run(chunks).map((one) => (one.kind === "token" ? one.token : null));
        const [first] = whole();
        expect(sampledOf([2, 3, 4].map(fork))).toEqual([first!, first!, first!]);
        expect(sampledOf([fork(5)])).toEqual([first!]);
      }),
    );

    test(
      "go on in the slot they were saved in",
      on((driver) => {
        const { pageTokens } = driver.device.spec;
        const tokens = prompt(40);
        const pages = pagesFrom(0, 40, pageTokens);
        driver.run([
          driver.saving(
            chunk(1, tokens.slice(0, 30), 0, pages.slice(0, Math.ceil(30 / pageTokens)), null),
            20,
          ),
        ]);
        const saved = driver.savedAt(20);
        const state: ChunkState = { slot: saved, from: saved, saves: [] };
        const [sampled] = driver.run([{ ...chunk(1, tokens.slice(20), 20, pages, row(random)), state }]);
        expect(sampled).toMatchObject({ kind: "token", token: whole()[0]! });
      }),
    );
  });

  describe(`${name}: sampling`, () => {
    const draw = (driver: Driver, sample: SampleRow): Sampled => {
      const [sampled] = driver.run([chunk(1, prompt(20), 0, [0, 1], sample)]);
      return sampled!;
    };
    const token = (driver: Driver, sample: SampleRow): TokenId => {
      const sampled = draw(driver, sample);
      if (sampled.kind !== "token") throw new Error(JSON.stringify(sampled));
      return sampled.token;
    };

    test(
      "seed and position make the chance",
      on((driver) => {
        const wild = { ...greedy, temperature: 2 };
        const drawAll = (vary: (i: number) => SampleRow) =>
          Array.from({ length: 16 }, (_, i) => token(driver, vary(i)));
        const bySeed = drawAll((i) => row({ ...wild, seed: [i, 0] }));
        const byPosition = drawAll((i) => ({ ...row(wild), position: i }));
        expect(new Set(bySeed).size).toBeGreaterThan(2);
        expect(new Set(byPosition).size).toBeGreaterThan(2);
        expect(drawAll((i) => row({ ...wild, seed: [i, 0] }))).toEqual(bySeed);
      }),
    );

    test(
      "logprobs are there if and only if they were asked for",
      on((driver) => {
        const logprobs = (topLogprobs: number | null) => {
          const sampled = draw(driver, row({ ...greedy, topLogprobs }));
          return sampled.kind === "token" ? sampled.logprobs : undefined;
        };
        expect(logprobs(null)).toBeNull();
        expect(logprobs(0)).toMatchObject({ top: [] });
        const three = logprobs(3)!;
        expect(three.logprob).toBeLessThanOrEqual(0);
        expect(three.top).toHaveLength(3);
        expect(three.top[0]).toEqual({ token: token(driver, row()), logprob: three.logprob });
        const falling = three.top.map(({ logprob }) => logprob);
        expect(falling).toEqual([...falling].sort((a, b) => b - a));
      }),
    );

    test(
      "logprobs are those of the raw logits, whatever a mask, a bias, a ban or a penalty makes of them",
      on((driver) => {
        const sampled = (changed: Partial<SampleRow>, sampling: Partial<Sampling> = {}) => {
          const sampled = draw(driver, { ...row({ ...greedy, topLogprobs: 5, ...sampling }), ...changed });
          if (sampled.kind !== "token") throw new Error(`wanted a token, got ${sampled.kind}`);
          return { token: sampled.token, ...sampled.logprobs! };
        };
        const { token: likeliest, top } = sampled({});
        const mask = new Uint32Array(Math.ceil(driver.device.spec.vocabSize / 32));
        mask[2] = 1 << 5;
        const masked = sampled({ allowed: mask });
        expect(masked).toEqual({ token: 69, logprob: masked.logprob, top });
        expect(sampled({}, { logitBias: [[69, 100]] })).toEqual(masked);
        expect(sampled({ banned: [likeliest] })).toEqual({
          token: top[1]!.token,
          logprob: top[1]!.logprob,
          top,
        });
        const seen = { tokens: Int32Array.of(likeliest), counts: Int32Array.of(9), length: 1 };
        expect(sampled({ seen }, { presencePenalty: 2, frequencyPenalty: 2 }).top).toEqual(top);
      }),
    );

    test(
      "a banned token is never drawn",
      on((driver) => {
        for (const sampling of [greedy, random]) {
          const banned: TokenId[] = [];
          for (let i = 0; i < 10; i += 1) banned.push(token(driver, { ...row(sampling), banned }));
          expect(new Set(banned).size).toBe(10);
        }
      }),
    );

    test(
      "a bias of 100 decides, and a ban outweighs it",
      on((driver) => {
        const biased = row({ ...greedy, logitBias: [[42, 100]] });
        expect(token(driver, biased)).toBe(42);
        expect(token(driver, { ...biased, banned: [42] })).not.toBe(42);
      }),
    );

    test(
      "a mask decides, and one that allows nothing fails its own row only",
      on((driver) => {
        const words = Math.ceil(driver.device.spec.vocabSize / 32);
        const none = new Uint32Array(words);
        const one = Uint32Array.from(none);
        one[2] = 1 << 5;
        for (const sampling of [greedy, random]) {
          expect(token(driver, { ...row(sampling), allowed: one })).toBe(69);
        }
        const [failed, good] = driver.run([
          chunk(1, [1, 2], 0, [0], { ...row(), allowed: none }),
          chunk(2, [1, 2], 0, [1], { ...row(), allowed: one }),
        ]);
        expect(failed).toMatchObject({ kind: "failed", sequence: 1, reason: expect.any(String) });
        expect(good).toMatchObject({ kind: "token", sequence: 2, token: 69 });
      }),
    );

    test(
      "the order of seen tokens does not matter, nor what lies beyond their length",
      on((driver) => {
        const penalties = { ...random, repetitionPenalty: 1.3, presencePenalty: 1, frequencyPenalty: 0.5 };
        const seen = (tokens: readonly number[], counts: readonly number[]) => ({
          ...row(penalties),
          seen: { tokens: Int32Array.from(tokens), counts: Int32Array.from(counts), length: 3 },
        });
        expect(token(driver, seen([5, 9, 70], [1, 0, 4]))).toBe(
          token(driver, seen([70, 5, 9, 1, 2], [4, 1, 0, 9, 9])),
        );
      }),
    );
  });
}

/**
 * Expects that each draw in a multi-token chunk, beside another sequence's chunk, equals the draw of a step
 * with its token alone.
 */
function expectRowsOfSingleSteps(driver: Driver): void {
  const { pageTokens, vocabSize } = driver.device.spec;
  const [tokens, start] = [prompt(40), 20];
  const even = new Uint32Array(Math.ceil(vocabSize / 32)).fill(0x55555555);
  const seen = { tokens: Int32Array.of(3, 70), counts: Int32Array.of(0, 2), length: 2 };
  const rows: readonly SampleRow[] = [
    { ...row({ ...greedy, topLogprobs: 2 }), afterIndex: 0 },
    { ...row(random), afterIndex: 1, position: 1 },
    { ...row(random), afterIndex: 7, position: 2, allowed: even },
    { ...row({ ...random, presencePenalty: 1, topLogprobs: 0 }), afterIndex: 8, position: 3, seen },
    { ...row({ ...greedy, logitBias: [[42, 100]] }), afterIndex: 12, position: 4 },
    { ...row(greedy), afterIndex: 19, position: 5, banned: [1, 2, 3] },
  ];
  const chunkOf = (begin: number, end: number, samples: readonly SampleRow[]): Chunk => ({
    ...chunk(1, tokens.slice(begin, end), begin, pagesFrom(0, end, pageTokens), null),
    samples,
  });
  driver.run([driver.saving(chunkOf(0, start, []), start)]);
  const company = chunk(2, prompt(9, 4), 0, pagesFrom(10, 9, pageTokens), row());
  const befores = rows.map(({ afterIndex }) => afterIndex).filter((count) => count > 0);
  const together = driver.run([driver.saving(chunkOf(start, tokens.length, rows), ...befores), company]);
  const logits = driver.logits();
  const width = logits.length / (rows.length + 1);
  rows.forEach((each, i) => {
    const at = start + each.afterIndex;
    expect(driver.run([chunkOf(at, at + 1, [{ ...each, afterIndex: 0 }])])).toEqual([together[i]!]);
    expect(driver.logits()).toEqual(logits.slice(i * width, (i + 1) * width));
  });
  expect(driver.run([company])).toEqual(together.slice(rows.length));
}

/** Way to compute a sequence of 40 prompt tokens and its generated tokens. */
interface Way extends StepsWay {
  readonly sampling: Sampling;
  /** Pages of the sequence; the first ones by default. */
  readonly pages?: readonly number[];
  /** True if the other sequences request hidden states too. */
  readonly hiddenCompany?: boolean;
}

/** Way to compute the hidden states of 40 prompt tokens, or of every `every`th one. */
interface HiddenWay extends StepsWay {
  readonly every?: number;
}

interface StepsWay {
  /** Maximum tokens of a chunk; all at once by default. */
  readonly chunkTokens?: number;
  /** Number of other sequences in the same steps, and how many of them come first in the step. */
  readonly company?: number;
  readonly place?: number;
  /** Length of a prefix that another sequence computes first. Whole pages are shared, the rest is copied. */
  readonly cachedTokens?: number;
}

class Driver {
  readonly device: Device;
  readonly settle: () => void;
  readonly logits: () => Float32Array;
  #steps = 0;
  /** Slot of each sequence with the length of its state, and slots of saved states by their lengths. */
  readonly #slots = new Map<SequenceId, { readonly slot: StateSlot; length: number }>();
  readonly #saved = new Map<number, StateSlot>();

  constructor({ device, settle, logits }: DeviceUnderTest) {
    this.device = device;
    this.settle = settle;
    this.logits = logits ?? (() => new Float32Array());
  }

  readonly step = (chunks: readonly Chunk[], moves: readonly PageMove[] = []): Step => {
    this.#steps += 1;
    return { number: this.#steps, moves, chunks: chunks.map((chunk) => this.saving(chunk)) };
  };

  /**
   * Names the state slots of a chunk, if the device has any, and saves its states after these numbers of its
   * tokens. A chunk begins from its sequence's own state, else from the last one saved at its start.
   */
  saving(chunk: Chunk, ...counts: number[]): Chunk {
    const { states } = this.device.spec;
    if (states === undefined || chunk.state !== undefined) return chunk;
    const { sequence, start, tokens } = chunk;
    const own = this.#slots.get(sequence) ?? { slot: this.#slots.size as StateSlot, length: 0 };
    const from = start === 0 ? null : own.length === start ? own.slot : this.savedAt(start);
    const saves = counts.map((count) => {
      const slot = this.#saved.get(start + count) ?? ((states.slots - 1 - this.#saved.size) as StateSlot);
      this.#saved.set(start + count, slot);
      return { count, slot };
    });
    this.#slots.set(sequence, { ...own, length: start + tokens.length });
    return { ...chunk, state: { slot: own.slot, from, saves } };
  }

  /** The slot of the last state that was saved with this length. */
  savedAt(length: number): StateSlot {
    const slot = this.#saved.get(length);
    if (slot === undefined) throw new Error(`no state of ${length} tokens was saved`);
    return slot;
  }

  /** Runs one step that must succeed. */
  run(chunks: readonly Chunk[], moves: readonly PageMove[] = []): readonly Sampled[] {
    const results: StepResult[] = [];
    this.device.start(this.step(chunks, moves), (result) => results.push(result));
    this.settle();
    const [result] = results;
    if (result?.kind !== "done") throw new Error(`the step ended with ${JSON.stringify(result)}`);
    return result.sampled;
  }

  generate(way: Way): TokenId[] {
    const { pageTokens } = this.device.spec;
    const promptTokens = 40;
    const tokens = prompt(promptTokens);
    const total = promptTokens + generatedTokens;
    const own = way.pages ?? pagesFrom(0, total, pageTokens);
    const generated: TokenId[] = [];
    let { start, pages, moves } = this.#cached(tokens, own, way.cachedTokens ?? 0);
    let companySteps = 0;
    while (generated.length < generatedTokens) {
      const end = Math.min(tokens.length, start + (way.chunkTokens ?? total));
      const isBehind = end < tokens.length;
      const table = pages.slice(0, Math.ceil(end / pageTokens));
      const sample = isBehind ? null : { ...row(way.sampling), position: generated.length };
      const chunks = this.#company(way.company ?? 0, companySteps, way.hiddenCompany ?? false);
      chunks.splice(way.place ?? 0, 0, chunk(1, tokens.slice(start, end), start, table, sample));
      const mine = this.run(chunks, moves).find(({ sequence }) => (sequence as number) === 1);
      companySteps += 1;
      moves = [];
      start = end;
      if (isBehind) continue;
      if (mine?.kind !== "token") throw new Error(`drew ${JSON.stringify(mine)}`);
      generated.push(mine.token);
      tokens.push(mine.token);
    }
    return generated;
  }

  /** Hidden states of the uncached tokens of a 40-token prompt. */
  hidden(way: HiddenWay): Float32Array[] {
    const { pageTokens } = this.device.spec;
    const { every = 1, cachedTokens = 0 } = way;
    const tokens = prompt(40);
    const hidden: Float32Array[] = [];
    let { start, pages, moves } = this.#cached(tokens, pagesFrom(0, 40, pageTokens), cachedTokens);
    for (let steps = 0; start < tokens.length; steps += 1) {
      const end = Math.min(tokens.length, start + (way.chunkTokens ?? tokens.length));
      const chunks = this.#company(way.company ?? 0, steps, false);
      const samples: ChunkRow[] = [];
      for (let at = start; at < end; at += 1) {
        if (at % every === every - 1) samples.push({ wants: "hidden", afterIndex: at - start });
      }
      const table = pages.slice(0, Math.ceil(end / pageTokens));
      chunks.splice(way.place ?? 0, 0, {
        ...chunk(1, tokens.slice(start, end), start, table, null),
        samples,
      });
      for (const one of this.run(chunks, moves)) if (one.kind === "hidden") hidden.push(one.hidden);
      moves = [];
      start = end;
    }
    return hidden;
  }

  /** Computes a prefix as part of another sequence, which then diverges, and reuses it. */
  #cached(tokens: readonly TokenId[], own: readonly number[], cached: number) {
    if (cached === 0) return { start: 0, pages: own, moves: [] as PageMove[] };
    const { pageTokens } = this.device.spec;
    const donor = [...tokens.slice(0, cached), ...prompt(5, 50)];
    const donorPages = pagesFrom(20, donor.length, pageTokens);
    this.run([this.saving(chunk(9, donor, 0, donorPages, null), cached)]);
    const whole = Math.floor(cached / pageTokens);
    const count = cached % pageTokens;
    const pages = own.map((page, i) => (i < whole ? donorPages[i]! : page));
    const moves = count === 0 ? [] : [moveOf(donorPages[whole]!, pages[whole]!, count)];
    return { start: cached, pages, moves };
  }

  /** Chunks of `count` other sequences, on pages of their own, in their `n`th step. */
  #company(count: number, n: number, hidden: boolean): Chunk[] {
    return Array.from({ length: count }, (_, i) => {
      const pages = pagesFrom(10 + 6 * i, 3 * n + 3, this.device.spec.pageTokens);
      const drawn = chunk(100 + i, prompt(3, i + 3 * n), 3 * n, pages, row());
      const first: ChunkRow = { wants: "hidden", afterIndex: 0 };
      return hidden ? { ...drawn, samples: [first, ...drawn.samples] } : drawn;
    });
  }
}

function row(sampling: Sampling = greedy): SampleRow {
  return { afterIndex: 0, sampling, position: 0, banned: [], seen: null, allowed: null };
}

/** A chunk that samples after its last token as `sample` says; null samples nothing. */
function chunk(
  sequence: number,
  tokens: readonly TokenId[],
  start: number,
  pages: readonly number[],
  sample: SampleRow | null,
): Chunk {
  const columns = { tokens: Int32Array.from(tokens), pages: Int32Array.from(pages) };
  const samples = sample === null ? [] : [{ ...sample, afterIndex: tokens.length - 1 }];
  return { sequence: sequence as SequenceId, start, ...columns, samples, adapter: 0 };
}

function moveOf(from: number, to: number, count: number): PageMove {
  return { from: from as PageId, tier: "device", to: to as PageId, count };
}

/** The spec of the devices under test. */
function specOf(open: () => DeviceUnderTest): Device["spec"] {
  const { device } = open();
  device.close();
  return device.spec;
}

/** `count` tokens below 100 without an obvious pattern. */
function prompt(count: number, salt = 0): TokenId[] {
  return Array.from({ length: count }, (_, i) => ((i + salt) * (i + salt + 3) * 7 + salt) % 100);
}

/** Consecutive pages from `first` that hold `tokens` tokens. */
function pagesFrom(first: number, tokens: number, pageTokens: number): number[] {
  return Array.from({ length: Math.ceil(tokens / pageTokens) }, (_, i) => first + i);
}
