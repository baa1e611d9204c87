/**
 * Every request that the API accepts must be valid for the engine. The engine treats an invalid step as a bug
 * and stops.
 */
import { afterAll, expect, test } from "bun:test";
import fc from "fast-check";
import { closeNativeModel, openCpuDevice, openNativeModel, PAGE_TOKENS } from "../../gpu/native/open.ts";
import { openModelFolder } from "../../model/folder.ts";
import type { SampleRow, SequenceId } from "../../scheduler/core.ts";
import { parseCompletionRequest } from "../../server/api/openai/schema.ts";
import { ApiError } from "../../server/http/errors.ts";
import { requestLimits } from "../../server/request/limits.ts";
import type { ServedModel } from "../../server/request/served-model.ts";
import { referenceModel } from "../reference/models.ts";
import { runs } from "../support/property.ts";
import { noDefaults } from "../support/served-model.ts";
import { cpuLibrary } from "./library.ts";

const library = cpuLibrary();
const folder = openModelFolder(referenceModel("qwen3").dir);
const options = { compute: "bf16", isa: "auto", threads: 1, contextMax: null } as const;
const model = openNativeModel(library, folder, options, () => undefined);
const device = openCpuDevice(library, model, {
  threads: 1,
  pages: 4,
  pageTokens: PAGE_TOKENS,
  stepTokensMax: 16,
  stepChunksMax: 1,
  topLogprobsMax: requestLimits.topLogprobsMax,
});
afterAll(() => {
  device.close();
  closeNativeModel(library, model);
});

const { vocabSize } = device.spec;
const served: ServedModel = {
  names: ["tiny"],
  contextMax: device.spec.contextMax,
  vocabSize,
  tokensOf: () => [],
  generationDefaults: noDefaults,
};

/** Numbers near limits: of the fields' ranges, of f32, of int32. */
const edge = fc.constantFrom(
  ...[0, -0, 1, 2, -1, -2, 20, 100, -100, 0.5, 0.01, 0.999999999, 1.0000000001, 100.00000001],
  ...[1e-5, 1e-9, 1e-45, 1e-46, 1e-300, 5e-324, 1e38, 1e39, 2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 53, 2 ** 63],
);
/** Numbers mostly within the range, bounds included; now and then an edge case that may be outside. */
const real = (min: number, max: number) =>
  fc.oneof(
    { weight: 10, arbitrary: fc.double({ min, max, noNaN: true }) },
    { weight: 10, arbitrary: fc.constantFrom(min, max) },
    { weight: 2, arbitrary: edge },
  );
const whole = (min: number, max: number) =>
  fc.oneof({ weight: 20, arbitrary: fc.integer({ min, max }) }, { weight: 1, arbitrary: edge });
const token = fc.oneof(
  { weight: 40, arbitrary: fc.nat(vocabSize - 1) },
  { weight: 1, arbitrary: fc.constantFrom(vocabSize, -1) },
);
const body = fc.record(
  {
    prompt: fc.array(token, { minLength: 1, maxLength: 8 }),
    temperature: real(0, requestLimits.temperatureMax),
    top_p: real(0, 1),
    top_k: whole(-1, 2 ** 31 - 1),
    min_p: real(0, 1),
    repetition_penalty: real(requestLimits.repetitionPenaltyMin, requestLimits.repetitionPenaltyMax),
    presence_penalty: real(-2, 2),
    frequency_penalty: real(-2, 2),
    seed: whole(-(2 ** 31), 2 ** 31 - 1),
    logprobs: whole(0, requestLimits.topLogprobsMax),
    logit_bias: fc.dictionary(token.map(String), real(-100, 100), { maxKeys: 4 }),
    stop_token_ids: fc.array(token, { maxLength: 4 }),
  },
  { requiredKeys: ["prompt"] },
);

test("a request in range draws a token or fails alone", () => {
  let refused = 0;
  let drawn = 0;
  fc.assert(
    fc.property(body, fc.nat(0xffffffff), (given, position) => {
      let request: ReturnType<typeof parseCompletionRequest>;
      try {
        request = parseCompletionRequest(given, served);
      } catch (error) {
        expect(error).toBeInstanceOf(ApiError);
        refused += 1;
        return;
      }
      const { sampling, stopTokens } = request.generation;
      const tokens = Int32Array.from(request.prompts[0] as readonly number[]);
      const seen = { tokens, counts: tokens.map((_, i) => i), length: tokens.length };
      const afterIndex = tokens.length - 1;
      const row: SampleRow = { afterIndex, sampling, position, banned: stopTokens, seen, allowed: null };
      const pages = new Int32Array(1);
      const chunk = { sequence: 1 as SequenceId, start: 0, tokens, pages, samples: [row], adapter: 0 };
      let outcome = "";
      device.start({ number: 1, moves: [], chunks: [chunk] }, (result) => {
        outcome = result.kind === "done" ? result.sampled[0]!.kind : result.kind;
      });
      device.wait();
      device.deliver();
      expect(["token", "failed"]).toContain(outcome);
      if (outcome === "token") drawn += 1;
    }),
    runs(5000),
  );
  expect(refused).toBeGreaterThan(100);
  expect(drawn).toBeGreaterThan(100);
});
