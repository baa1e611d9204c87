/**
 * Costs and savings of constraints in an engine's steps, on a model folder, in one thread like an engine of
 * the server:
 *
 * - steps of free answers, and of as many where half are constrained: all schemas differ and force next to no
 * tokens;
 * - records per second under a schema with long keys: forced tokens drawn one by one, or computed together.
 *
 *   npx bun tools/random-model.ts Qwen2.5-0.5B <folder>
 *   npx bun benchmarks/constraint-steps.ts <folder> [--rows 32] [--steps 60] [--rounds 3] [--quant int8]
 *     [--library <path>]
 */
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { SeededRandom } from "../base/random.ts";
import { ConstrainedDevice } from "../gpu/constrained-device.ts";
import { openCpuDevice, openNativeModel } from "../gpu/native/open.ts";
import { openLibrary } from "../gpu/native.ts";
import { compileConstraint } from "../grammar/compile.ts";
import type { Constraint } from "../grammar/constraint.ts";
import { openModelFolder } from "../model/folder.ts";
import { formatsOf, type quantNames } from "../model/formats.ts";
import type { Sampled, SequenceId, StepResult } from "../scheduler/core.ts";
import { OnlineCostModel } from "../scheduler/cost/online.ts";
import type { Device } from "../scheduler/device.ts";
import { Engine } from "../scheduler/engine/engine.ts";
import type { EngineReport } from "../scheduler/messages.ts";
import { calibrate } from "../server/engines/calibrate.ts";
import { sequenceSpec } from "../simulation/factories.ts";
import { openTokenizer, textVocabulary } from "../text/model-text.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rows: { type: "string", default: "32" },
    steps: { type: "string", default: "60" },
    rounds: { type: "string", default: "3" },
    quant: { type: "string", default: "int8" },
    library: { type: "string", default: resolve(import.meta.dir, "../build/native/libbunting_cpu.so") },
  },
});
const [path] = positionals;
if (path === undefined) throw new Error("wanted: the folder of a model");
const rows = Number(values.rows);
const stepsTimed = Number(values.steps);
const STEPS_WARM = 8;
const PROMPT_TOKENS = 48;

const library = openLibrary(values.library);
const folder = openModelFolder(path);
const formats = formatsOf(
  folder.tensors,
  folder.config.shape.layers.length,
  values.quant as (typeof quantNames)[number],
  "bf16",
  "cpu",
);
const threads = Math.max(1, library.machineProbe().cores);
const compute = { compute: "bf16", isa: "auto", threads, contextMax: null, formats } as const;
const model = openNativeModel(library, folder, compute, () => {});
const vocabulary = textVocabulary(openTokenizer(path), model.vocabSize);
const random = new SeededRandom(1);

/** Engine on the model, with its devices and its drawn tokens. */
class Rig {
  readonly engine: Engine;
  readonly #native: ReturnType<typeof openCpuDevice>;
  #next = 0;
  /** Tokens by sequence. */
  readonly drawn: number[] = [];
  ended = 0;

  /** `forces`: forced tokens are computed in one chunk. */
  constructor(forces: boolean) {
    const limits = {
      threads,
      pages: rows * 2 * 48,
      pageTokens: 16,
      stepTokensMax: 2048,
      stepChunksMax: 2 * rows,
      topLogprobsMax: 0,
    };
    this.#native = openCpuDevice(library, model, limits);
    const costs = new OnlineCostModel(
      calibrate({ device: this.#native, nowMs: () => performance.now() }, model),
    );
    const constrained = new ConstrainedDevice(this.#native, vocabulary);
    const device: Device = {
      spec: constrained.spec,
      start: (step, done) => constrained.start(step, (result) => done(forces ? result : oneByOne(result))),
      close: () => constrained.close(),
    };
    const clock = { nowMs: () => performance.now(), after: () => () => {} };
    this.engine = new Engine(device, clock, {}, (report) => this.#take(report), costs);
  }

  submit(constraint: Constraint | null, tokensMax: number): void {
    const id = this.#next++ as SequenceId;
    const prompt = Int32Array.from(
      { length: PROMPT_TOKENS },
      () => 300 + random.below(model.vocabSize - 300),
    );
    const spec = sequenceSpec(prompt, tokensMax, {
      sampling: { temperature: 1, seed: [id, 0] },
      stop: { stopTokens: constraint === null ? [] : folder.config.eosTokens.slice() },
      ...(constraint === null ? {} : { constraint }),
    });
    this.drawn.push(0);
    this.engine.receive({ kind: "submit", sequence: { ...spec, id } });
  }

  get busy(): boolean {
    return this.#native.inFlight;
  }

  /** Milliseconds of one step, planning and masks included. */
  step(): number {
    const beganMs = performance.now();
    this.#native.wait();
    this.#native.deliver();
    return performance.now() - beganMs;
  }

  close(): void {
    this.#native.close();
  }

  #take({ sequences, finished }: EngineReport): void {
    for (const sequence of sequences) this.drawn[sequence]! += 1;
    for (const { finish, sequence } of finished) {
      this.ended += 1;
      if (finish.kind === "failed") throw new Error(`sequence ${sequence}: ${finish.reason}`);
    }
  }
}

/** Removes the forced tokens from a result, so that the engine draws them one by one. */
function oneByOne(result: StepResult): StepResult {
  if (result.kind !== "done") return result;
  const sampled = result.sampled.map((one): Sampled => {
    if (one.kind !== "token") return one;
    const { forced: _, ...drawn } = one;
    return drawn;
  });
  return { ...result, sampled };
}

function schemaOf(schema: unknown): Constraint {
  const { grammar } = compileConstraint({ kind: "schema", schema, layout: "compact" });
  return { id: JSON.stringify(schema), grammar };
}

function median(given: readonly number[]): number {
  return given.toSorted((a, b) => a - b)[Math.floor(given.length / 2)]!;
}

/** Returns median step times with `held` constrained answers out of twice `rows`. */
function stepMs(held: number): number {
  const rig = new Rig(true);
  for (let i = 0; i < 2 * rows; i++) {
    const items = {
      type: "string",
      minLength: 1 + i,
      maxLength: 4000 - i,
      pattern: `^[^${"xyzqw"[i % 5]}]*$`,
    };
    rig.submit(i < held ? schemaOf({ type: "array", items, minItems: 500 }) : null, 700);
  }
  rig.engine.run();
  const times: number[] = [];
  for (let i = 0; i < STEPS_WARM + stepsTimed; i++) {
    const tookMs = rig.step();
    if (i >= STEPS_WARM) times.push(tookMs);
  }
  rig.close();
  return median(times);
}

const record = schemaOf({
  type: "object",
  properties: {
    accountIdentifier: { type: "integer", minimum: 1, maximum: 99_999 },
    subscriptionStatus: { enum: ["active", "suspended", "cancelled"] },
    preferredContactMethod: { enum: ["email", "telephone", "letter"] },
    hasAcceptedTermsAndConditions: { type: "boolean" },
    numberOfOpenInvoices: { type: "integer", minimum: 0, maximum: 99 },
  },
  required: [
    "accountIdentifier",
    "subscriptionStatus",
    "preferredContactMethod",
    "hasAcceptedTermsAndConditions",
    "numberOfOpenInvoices",
  ],
  additionalProperties: false,
});

/** Records per second, with `rows` answers at a time. */
function recordsPerSecond(forces: boolean): { readonly perSecond: number; readonly tokens: number } {
  const rig = new Rig(forces);
  const count = 3 * rows;
  for (let i = 0; i < count; i++) rig.submit(record, 400);
  const beganMs = performance.now();
  rig.engine.run();
  while (rig.busy) rig.step();
  const seconds = (performance.now() - beganMs) / 1000;
  rig.close();
  if (rig.ended !== count) throw new Error(`${rig.ended} of ${count} answers have ended`);
  return { perSecond: count / seconds, tokens: rig.drawn.reduce((sum, one) => sum + one, 0) / count };
}

const ratios: number[] = [];
const gains: number[] = [];
for (let round = 0; round < Number(values.rounds); round++) {
  const [free, mixed] = [stepMs(0), stepMs(rows)];
  ratios.push(mixed / free);
  console.log(
    `${2 * rows} answers: ${free.toFixed(1)} ms a step; half of them held ${mixed.toFixed(1)} ms, ${(mixed / free).toFixed(3)}×`,
  );
  const [one, together] = [recordsPerSecond(false), recordsPerSecond(true)];
  gains.push(together.perSecond / one.perSecond);
  console.log(
    `records: ${one.perSecond.toFixed(2)}/s one by one, ${together.perSecond.toFixed(2)}/s together, ${(together.perSecond / one.perSecond).toFixed(2)}×; ${one.tokens.toFixed(0)} and ${together.tokens.toFixed(0)} tokens each`,
  );
}
console.log(`medians: step ${median(ratios).toFixed(3)}×, records ${median(gains).toFixed(2)}×`);
