/**
 * Comparison of every engine of this machine with Hugging Face transformers, for every family. The CPU engine
 * runs at every instruction set; the CUDA engine runs on the emulated GPU and, if present, on a real one.
 *
 * Two claims are tested together. First, the mathematics is right: logits agree with the reference, and in
 * f32 the greedy tokens are equal. Second, results do not depend on the computation's course. However a
 * prompt is cut, shared, batched or recomputed, its logits are the same bits as those of the whole prompt.
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { isaNames, type NativeLibrary } from "../../gpu/native.ts";
import { openModelFolder } from "../../model/folder.ts";
import {
  type Compute,
  gpuReferenceNames,
  type PromptName,
  type ReferenceModel,
  type ReferenceName,
  referenceModel,
  referenceNames,
} from "../reference/models.ts";
import { bestTwo, cosineOf, largestDifference, sameBits } from "./compare.ts";
import { cpuLibrary, gpuEngines } from "./library.ts";
import { Rig, type RigOptions, type Stream } from "./rig.ts";

setDefaultTimeout(120_000); // milliseconds, for an emulated GPU or unoptimised portable kernels on a busy machine

const promptNames: readonly PromptName[] = ["long", "branch", "short"];

/** Amount of computation. */
interface Effort {
  /** Stride of the compared positions of a prompt; the last one is compared, too. */
  readonly everyPosition: number;
  readonly greedyTokens: number;
  readonly chunkSizes: readonly number[];
  readonly branchSizes: readonly number[];
  readonly mixes: readonly number[];
  readonly lostAfter: readonly number[];
}

const thorough: Effort = {
  everyPosition: 1,
  greedyTokens: 32,
  chunkSizes: Array.from({ length: 17 }, (_, index) => index + 1),
  branchSizes: [1, 3, 64],
  mixes: [1, 2, 3],
  lostAfter: [1, 12, 31],
};
/** Reduced effort: an emulated GPU needs a twentieth of a second per step. */
const brief: Effort = {
  everyPosition: 6,
  greedyTokens: 6,
  chunkSizes: [5, 17],
  branchSizes: [3],
  mixes: [1, 2],
  lostAfter: [2],
};

/** Engine configuration to test. */
interface Way {
  readonly name: string;
  readonly library: NativeLibrary;
  readonly options: Partial<RigOptions> & { readonly compute: Compute };
  readonly models: readonly ReferenceName[];
  /** Thread counts that give the same bits as two threads. */
  readonly threads: readonly number[];
  readonly effort: Effort;
}

function ways(): Way[] {
  const library = cpuLibrary();
  const { isaBest, isaBuilt } = library.machineProbe();
  const levels = isaNames.slice(0, Math.min(isaNames.indexOf(isaBest), isaNames.indexOf(isaBuilt)) + 1);
  const onCpu = levels.flatMap((isa) =>
    (["f32", "bf16"] as const).map((compute) => ({
      name: `${compute} with ${isa}`,
      library,
      options: { compute, isa },
      models: referenceNames,
      threads: [1, 3],
      effort: thorough,
    })),
  );
  const onGpus = gpuEngines().map((engine) => ({
    name: `bf16 on ${engine.name}`,
    library: engine.library,
    options: { compute: "bf16" } as const,
    models: gpuReferenceNames,
    threads: [],
    effort: engine.name === "emu" ? brief : thorough,
  }));
  return [...onCpu, ...onGpus];
}

/**
 * Tolerances of agreement. `margin`: if the reference's best logit leads by more, the arg-max must be equal.
 */
const tolerances: Readonly<Record<Compute, { cosine: number; margin: number }>> = {
  f32: { cosine: 0.9999, margin: 0.001 },
  bf16: { cosine: 0.999, margin: 0.2 },
};

for (const { name: way, library, options, models, threads, effort } of ways()) {
  const { compute } = options;
  const { greedyTokens } = effort;
  for (const model of models.map(referenceModel)) {
    describe(`${model.name} in ${way}`, () => {
      let rig: Rig;
      let whole: WholeLogits;
      beforeAll(() => {
        rig = new Rig(library, openModelFolder(model.dir), options);
        whole = computeWhole(rig, model, effort.everyPosition);
      });
      afterAll(() => rig.close());

      const expectWholeBits = (prompt: PromptName) => (position: number, logits: Float32Array) => {
        const wanted = whole[prompt].get(position); // undefined beyond the prompt
        if (wanted !== undefined && !sameBits(logits, wanted)) {
          const difference = largestDifference(logits, wanted);
          throw new Error(
            `${prompt}, position ${position}: off by ${difference} from the whole prompt's logits`,
          );
        }
      };
      // In bf16 rounding may flip a near tie: the tokens of the first configuration are then the expected
      // ones.
      const greedy: Partial<Record<PromptName, readonly number[]>> =
        compute === "f32" ? { ...model.greedy } : {};
      const expectGreedy = (prompt: PromptName, tokens: readonly number[]): void => {
        greedy[prompt] ??= tokens;
        expect(tokens).toEqual([...greedy[prompt]]);
      };

      test("logits of whole prompts agree with transformers", () => {
        const { cosine, margin } = tolerances[compute];
        let clear = 0;
        let positions = 0;
        for (const prompt of promptNames) {
          whole[prompt].forEach((logits, position) => {
            const reference = model.logits(compute, prompt, position);
            expect(cosineOf(logits, reference)).toBeGreaterThanOrEqual(cosine);
            positions += 1;
            const [best, second] = bestTwo(reference);
            if (reference[best]! - reference[second]! <= margin) return;
            clear += 1;
            expect(bestTwo(logits)[0]).toBe(best);
          });
        }
        expect(clear).toBeGreaterThan(positions * 0.6);
      });

      for (const count of threads) {
        test(`${count} threads give the same bits as two`, () => {
          const other = new Rig(library, openModelFolder(model.dir), { ...options, threads: count });
          const logits = computeWhole(other, model, effort.everyPosition);
          other.close();
          for (const prompt of promptNames) {
            for (const [position, row] of logits[prompt]) expectWholeBits(prompt)(position, row);
          }
        });
      }

      test("whole prompts continue greedily as in transformers", () => {
        for (const prompt of promptNames) {
          const stream = rig.stream(model.prompts[prompt]);
          expectGreedy(prompt, rig.generate(stream, greedyTokens, 64, [], expectWholeBits(prompt)));
          rig.free(stream);
        }
      });

      test("chunks of every size give the same bits and tokens", () => {
        for (const size of effort.chunkSizes) {
          const stream = rig.stream(model.prompts.long);
          expectGreedy("long", rig.generate(stream, greedyTokens, size, [], expectWholeBits("long")));
          rig.free(stream);
        }
      });

      test("a cached prefix, its last page copied in part, gives the same bits and tokens", () => {
        const long = rig.stream(model.prompts.long);
        rig.generate(long, 1, 64);
        for (const size of effort.branchSizes) {
          const { stream, moves } = rig.branch(long, model.branchAt, model.prompts.branch);
          expectGreedy("branch", rig.generate(stream, greedyTokens, size, moves, expectWholeBits("branch")));
          rig.free(stream, Math.floor(model.branchAt / 16));
        }
        // Shared and copied pages still hold their original contents.
        const again = rig.branch(long, 48, model.prompts.long);
        expectGreedy(
          "long",
          rig.generate(again.stream, greedyTokens, 64, again.moves, expectWholeBits("long")),
        );
        rig.free(again.stream, 3);
        rig.free(long);
      });

      test.each([...effort.mixes])(
        "in the company of others, mixed by seed %d, the same bits and tokens",
        (seed) => {
          const streams = promptNames.map((prompt) => rig.stream(model.prompts[prompt]));
          runMixed(rig, streams, greedyTokens, seed, (index, position, logits) => {
            expectWholeBits(promptNames[index]!)(position, logits);
          });
          promptNames.forEach((prompt, index) => {
            const stream = streams[index]!;
            expectGreedy(prompt, stream.tokens.slice(model.prompts[prompt].length));
            rig.free(stream);
          });
        },
      );

      test("a stream that lost its pages and is computed again goes on with the same tokens", () => {
        for (const lostAfter of effort.lostAfter) {
          const stream = rig.stream(model.prompts.long);
          rig.generate(stream, lostAfter, 64);
          rig.free(stream);
          rig.generate(stream, greedyTokens - lostAfter, 7, [], expectWholeBits("long"));
          expectGreedy("long", stream.tokens.slice(model.prompts.long.length));
          rig.free(stream);
        }
      });
    });
  }
}

/** Logits of each prompt, by position. */
type WholeLogits = Readonly<Record<PromptName, ReadonlyMap<number, Float32Array>>>;

/**
 * Returns the logits after every `every`th position and the last. Each comes from a prompt that ends there,
 * in one chunk.
 */
function computeWhole(rig: Rig, model: ReferenceModel, every: number): WholeLogits {
  const logitsOf = (prompt: PromptName): Map<number, Float32Array> => {
    const tokens = model.prompts[prompt];
    const positions = [...tokens.keys()].filter((p) => p % every === 0 || p === tokens.length - 1);
    const parts = positions.map((position) => ({
      stream: rig.stream(tokens.slice(0, position + 1)),
      count: position + 1,
    }));
    const drawn = rig.step(parts);
    for (const { stream } of parts) rig.free(stream);
    return new Map(drawn.map(({ logits }, index) => [positions[index]!, logits]));
  };
  return { long: logitsOf("long"), branch: logitsOf("branch"), short: logitsOf("short") };
}

/**
 * Runs all streams to the end of their greedy tokens, in steps with a seeded random mix of chunks and
 * decodes.
 */
function runMixed(
  rig: Rig,
  streams: readonly Stream[],
  greedyTokens: number,
  seed: number,
  seen: (index: number, position: number, logits: Float32Array) => void,
): void {
  let state = seed;
  const random = (below: number): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const ends = streams.map((stream) => stream.tokens.length + greedyTokens);
  for (;;) {
    const active = streams
      .map((_, index) => index)
      .filter((index) => streams[index]!.tokens.length < ends[index]!);
    if (active.length === 0) return;
    const chosen = active.filter(() => random(3) > 0);
    if (chosen.length === 0) continue;
    const parts = chosen.map((index) => {
      const stream = streams[index]!;
      return { stream, count: 1 + random(Math.min(20, stream.tokens.length - stream.computed)) };
    });
    if (random(2) === 0) parts.reverse();
    const drawn = rig.step(parts);
    parts.forEach(({ stream }, at) => {
      seen(streams.indexOf(stream), stream.computed - 1, drawn[at]!.logits);
      if (stream.computed === stream.tokens.length) stream.tokens.push(drawn[at]!.token);
    });
  }
}
