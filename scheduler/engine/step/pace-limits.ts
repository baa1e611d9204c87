import type { EngineCosts } from "../../cost/cost-model.ts";
import type { TimePolicy } from "../../policy.ts";
import type { StepLoad } from "./step-load.ts";
import type { SequenceView } from "./step-rule.ts";

/**
 * Factor by which prompts may lengthen a step of decodes, however long those take alone. Prompts then have half
 * of the time, and streams half of their speed.
 */
const SLOWED = 2;
/** The same factor where readers do not notice: prompts have three quarters of the time. */
const UNNOTICED = 4;
/**
 * Factor on one stream's time up to which decodes may lengthen a step, if that stream alone takes more than
 * its part of `stepMs`. At this factor the fixed cost of a step is spread so far that more streams would add
 * less than an eighth to the throughput.
 */
const CROWDED = 8;
/** Offline sequences lengthen a step of others by this part of it at most. */
const OFFLINE_SHARE = 0.0625;

/** Limits of steps by which streams keep their pace. */
export class PaceLimits {
  readonly #policy: TimePolicy;
  readonly #costs: EngineCosts;

  constructor(policy: TimePolicy, costs: EngineCosts) {
    this.#policy = policy;
    this.#costs = costs;
  }

  /** The limit of a step after which `slackMs` are left to a target. */
  targetMs(slackMs: number): number {
    return slackMs / (1 + this.#policy.margin + (this.#costs.margin ?? 0));
  }

  /**
   * The limit of a step with prompts beside untargeted streams, where without prompts it takes `aloneMs`. A
   * device whose steps are hard to predict keeps to it on average.
   */
  untargetedMs(aloneMs: number): number {
    const { stepMs, readingMs } = this.#policy;
    return Math.max(stepMs, Math.min(readingMs, UNNOTICED * aloneMs), SLOWED * aloneMs);
  }

  /** The limit of a step with offline sequences beside these decodes. */
  offlineMs({ count, context }: StepLoad["online"]): number {
    return (1 + OFFLINE_SHARE) * this.#decodesMs(count, context);
  }

  /** True if the running streams keep their pace with one more sequence for good. */
  admits(load: StepLoad, sequence: SequenceView, isAged: boolean): boolean {
    const { offline, online } = load;
    const { isOffline, isInteractive } = sequence.objective;
    // Offline work is no reason to keep another sequence out, even if that cannot keep its target.
    if (online.count === 0 && (!isOffline || offline.count === 0)) return true;
    const targetMs = load.targetOf(sequence);
    const tightestMs = Math.min(load.tightestMs, targetMs ?? Number.POSITIVE_INFINITY);
    const isUntargeted = load.untargetedStreams > 0 || (targetMs === null && isInteractive);
    const crowdedMs = isUntargeted
      ? Math.max(this.#policy.stepMs, CROWDED * this.#decodesMs(1, sequence.length))
      : tightestMs;
    const limitMs = Math.min(this.targetMs(tightestMs), crowdedMs);
    if (limitMs === Number.POSITIVE_INFINITY) return true;
    // Offline decodes can be left out of all steps but one in `skipsMax` + 1, except for more offline work.
    const share = isOffline && !isAged ? 1 : 1 / (this.#policy.skipsMax + 1);
    const steadyMs = this.#decodesMs(
      online.count + Math.ceil(offline.count * share) + 1,
      online.context + offline.context * share + sequence.length,
    );
    if (!isOffline || load.untargetedStreams === 0 || offline.count === 0) return steadyMs <= limitMs;
    return steadyMs <= Math.min(limitMs, this.offlineMs(online));
  }

  #decodesMs(decodes: number, decodeContext: number): number {
    return this.#costs.stepMs({ prompts: [], decodes, decodeContext });
  }
}
