import type { Clock } from "../../base/clock.ts";
import type { EngineId, Objective, SequenceId, SequenceSpec } from "../core.ts";
import type { EngineCosts } from "../cost/cost-model.ts";
import type { DeviceSpec } from "../device.ts";
import type { EngineLoad } from "../messages.ts";
import { objectives } from "../objective.ts";
import type { BatchPolicy } from "../policy.ts";
import { Calibration, type Range } from "./calibration.ts";
import { type EngineOutlook, type Forecast, forecastAll, type SeenSequence } from "./forecast.ts";

/** Prediction for a sequence that has no token yet. */
export interface Estimate {
  /** Sequences that will begin before it. */
  readonly position: number;
  /** Times from now on, each with the range of eight in ten outcomes. */
  readonly first: Range;
  readonly end: Range;
}

/** The engines of a fleet, as far as forecasts need them. */
export interface OutlookParts {
  readonly clock: Pick<Clock, "nowMs">;
  readonly batch: BatchPolicy;
  /** True if it makes a forecast now and then to learn from its outcome. */
  readonly learns: boolean;
  readonly engines: readonly { readonly spec: DeviceSpec; readonly costs: EngineCosts }[];
}

/** Weight of the last answer and the last prompt in the averages. */
const EMA_WEIGHT = 1 / 32;
/** Expected tokens of an answer until some have ended. */
const ANSWER_GUESS = 128;
/** Time between two forecasts that are made only to learn from their outcome. */
const LEARN_EVERY_MS = 250;
/** Time for which the forecasts of an engine are cached, for all its sequences. */
const SHARED_MS = 250;
/** Least time between two forecasts of an engine; sequences that arrive in between have none until then. */
const AGAIN_MS = 20;
/** Engines that an estimate compares at most. */
const COMPARED_MAX = 4;

/** A sequence that was placed and has not ended. */
interface Placed {
  readonly engine: EngineId;
  readonly objective: Objective;
  readonly promptTokens: number;
  readonly tokensMax: number;
  readonly placedMs: number;
  isStarted: boolean;
  /** Prompt tokens to compute, as expected before its admission. */
  left: number;
  drawn: number;
  /** Forecast whose outcome is awaited; null: none was made. */
  forecast: Forecast | null;
}

type Spec = Pick<SequenceSpec, "promptTokens" | "stop" | "service">;

/**
 * Predicts when sequences get their first tokens and end, and calibrates itself by the outcomes. The fleet calls it on
 * each event. Forecasts influence no decision, so recordings leave them out.
 */
export class Outlook {
  readonly #parts: OutlookParts;
  readonly #loads: (EngineLoad | null)[];
  /** In order of placement. */
  readonly #placed = new Map<SequenceId, Placed>();
  readonly #first = new Calibration();
  readonly #end = new Calibration();
  #answerTokens = ANSWER_GUESS;
  #computedShare = 1;
  /** Latest forecasts of all sequences, by engine. */
  readonly #recent: { readonly atMs: number; readonly forecasts: ReadonlyMap<number, Forecast> }[] = [];
  #learntMs = Number.NEGATIVE_INFINITY;

  constructor(parts: OutlookParts) {
    this.#parts = parts;
    this.#loads = parts.engines.map(() => null);
  }

  /* ---- events ---- */

  /** Records that a sequence is sent to an engine, perhaps again. `drawn`: tokens that it has. */
  placed(id: SequenceId, engine: EngineId, { promptTokens, stop, service }: Spec, drawn: number): void {
    const nowMs = this.#parts.clock.nowMs();
    const placed: Placed = {
      ...{ engine, objective: service.objective, placedMs: nowMs, drawn, isStarted: false, forecast: null },
      ...{
        promptTokens: promptTokens.length,
        tokensMax: stop.tokensMax,
        left: this.#likely(promptTokens.length),
      },
    };
    this.#placed.delete(id);
    this.#placed.set(id, placed);
    if (!this.#parts.learns || drawn > 0 || nowMs < this.#learntMs + LEARN_EVERY_MS) return;
    this.#learntMs = nowMs;
    placed.forecast = forecastAll(this.#outlook(engine, nowMs), id).get(id) ?? null;
  }

  reported(engine: EngineId, load: EngineLoad): void {
    this.#loads[engine] = load;
  }

  /** Records an admission. */
  started(id: SequenceId, cachedTokens: number): void {
    const placed = this.#placed.get(id);
    if (placed === undefined) return;
    const { promptTokens } = placed;
    placed.isStarted = true;
    placed.left = promptTokens - cachedTokens;
    this.#computedShare += (placed.left / promptTokens - this.#computedShare) * EMA_WEIGHT;
  }

  /** Records a token. */
  drew(id: SequenceId): void {
    const placed = this.#placed.get(id);
    if (placed === undefined) return;
    placed.drawn += 1;
    if (placed.drawn === 1 && placed.forecast !== null)
      this.#first.observe(placed.forecast.firstMs, this.#parts.clock.nowMs() - placed.placedMs);
  }

  /** Records the end of a sequence. `isWhole`: its answer is complete. */
  ended(id: SequenceId, isWhole: boolean): void {
    const placed = this.#placed.get(id);
    this.#placed.delete(id);
    if (placed === undefined || !isWhole) return;
    this.#answerTokens += (placed.drawn - this.#answerTokens) * EMA_WEIGHT;
    if (placed.forecast !== null)
      this.#end.observe(placed.forecast.endMs, this.#parts.clock.nowMs() - placed.placedMs);
  }

  /* ---- estimates ---- */

  /** Estimate for a sequence that waits for its first token. Null: it does not, or came a moment ago. */
  estimateOf(id: SequenceId): Estimate | null {
    const placed = this.#placed.get(id);
    if (placed === undefined || placed.drawn > 0) return null;
    const nowMs = this.#parts.clock.nowMs();
    let recent = this.#recent[placed.engine];
    const keptMs = recent?.forecasts.has(id) === true ? SHARED_MS : AGAIN_MS;
    if (recent === undefined || nowMs >= recent.atMs + keptMs) {
      recent = { atMs: nowMs, forecasts: forecastAll(this.#outlook(placed.engine, nowMs)) };
      this.#recent[placed.engine] = recent;
    }
    const forecast = recent.forecasts.get(id);
    return forecast === undefined ? null : this.#calibrated(forecast);
  }

  /** Estimate for a sequence that would be submitted now, on the engine where it would begin first. */
  estimate(promptTokens: number, tokensMax: number, objective: Objective): Estimate {
    const own: SeenSequence = {
      ...{
        id: NOBODY,
        state: "waiting",
        waitedMs: 0,
        context: promptTokens,
        left: this.#likely(promptTokens),
      },
      ...{ answer: this.#answer(0, tokensMax), precedence: objectives[objective].precedence },
    };
    const nowMs = this.#parts.clock.nowMs();
    const forecasts = this.#parts.engines.slice(0, COMPARED_MAX).map((_, engine) => {
      const outlook = this.#outlook(engine as EngineId, nowMs);
      return forecastAll({ ...outlook, sequences: [...outlook.sequences, own] }, NOBODY).get(NOBODY)!;
    });
    return this.#calibrated(forecasts.reduce((best, one) => (one.firstMs < best.firstMs ? one : best)));
  }

  #calibrated({ position, firstMs, endMs }: Forecast): Estimate {
    const first = this.#first.range(firstMs);
    const end = this.#end.range(endMs);
    return { position, first, end };
  }

  /** An engine with the sequences that are known to be there. */
  #outlook(engine: EngineId, nowMs: number): EngineOutlook {
    const { batch, engines } = this.#parts;
    const { spec, costs } = engines[engine]!;
    const load = this.#loads[engine] ?? null;
    const sequences: SeenSequence[] = [];
    for (const [id, placed] of this.#placed) {
      if (placed.engine === engine) sequences.push(this.#seen(id, placed, nowMs));
    }
    const { pages, stepChunksMax, stepTokensMax, states, pageTokens } = spec;
    return {
      ...{ sequences, costs, stepTokensMax, pageTokens, lastStepMs: load?.stepMs ?? 0 },
      stepMs: batch.kind === "time" ? (batch.tbtMs ?? batch.stepMs) : Number.POSITIVE_INFINITY,
      sequencesMax: Math.min(stepChunksMax, stepTokensMax, states?.slots ?? stepChunksMax),
      pagesAvailable: load === null ? pages : load.pagesFree + load.pagesCached,
    };
  }

  #seen(id: SequenceId, placed: Placed, nowMs: number): SeenSequence {
    const { drawn, isStarted, left, promptTokens, tokensMax, objective, placedMs } = placed;
    const state = drawn > 0 && isStarted ? "answer" : isStarted ? "prompt" : "waiting";
    return {
      ...{ id, state, context: promptTokens + drawn, answer: this.#answer(drawn, tokensMax) },
      precedence: objectives[objective].precedence,
      // Half of a prompt that is being computed is left, on average.
      left: state === "prompt" ? Math.ceil(left / 2) : left,
      waitedMs: nowMs - placedMs,
    };
  }

  /** Expected tokens that are left to draw, ≥ 1. */
  #answer(drawn: number, tokensMax: number): number {
    const expected = drawn < this.#answerTokens ? this.#answerTokens : 2 * drawn;
    return Math.max(1, Math.min(tokensMax, Math.round(expected)) - drawn);
  }

  /** Tokens of a prompt that are likely not cached. */
  #likely(promptTokens: number): number {
    return Math.ceil(promptTokens * this.#computedShare);
  }
}

/** Number of a sequence that was not submitted. */
const NOBODY = -1;
