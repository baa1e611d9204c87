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
  type Sampled,
  type SampleRow,
  type Sampling,
  type StepResult,
} from "../scheduler/core.ts";
import type { Device } from "../scheduler/device.ts";
import {
  chunk,
  type DeviceUnderTest,
  Driver,
  type HiddenWay,
  moveOf,
  pagesFrom,
  prompt,
  row,
} from "./conformance-driver.ts";

const greedy = greedySampling;
const random: Sampling = { ...greedy, temperature: 1, topP: 0.95, seed: [7, 9] };

/** Makes a test that runs `body` on a fresh device. */
type TestBody = (body: (driver: Driver) => void) => () => void;

export function deviceConformance(name: string, open: () => DeviceUnderTest): void {
  const on: TestBody = (body) => () => {
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
      "close drops a step in flight",
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
      "without chunks, which only copy pages",
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
      "how the prompt is chunked",
      on((driver) => {
        const whole = alone();
        for (let size = 1; size <= 17; size += 1) {
          expect(driver.generate({ sampling, chunkTokens: size })).toEqual(whole);
        }
      }),
    );

    test(
      "the other chunks of the step",
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
      "how the prompt is chunked, and which of them are requested",
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
      "the other chunks of the step, and their draws",
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

  if (specOf(open).states !== undefined) stateConformance(name, on);

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
      "seed and position determine a draw",
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

/** Rules of devices with state slots. */
function stateConformance(name: string, on: TestBody): void {
  describe(`${name}: states`, () => {
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
      "continue in place in the slot they were saved in",
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
}

/**
 * Expects that each row of a multi-token chunk, batched with another sequence's chunk, samples the same token
 * as a step with that token alone.
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

/** The spec of the devices under test. */
function specOf(open: () => DeviceUnderTest): Device["spec"] {
  const { device } = open();
  device.close();
  return device.spec;
}
