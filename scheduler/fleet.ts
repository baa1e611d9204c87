import type { Clock } from "./clock.ts";
import {
  assert,
  type EngineId,
  type Finish,
  type SequenceId,
  type SequenceSpec,
  type TokenId,
  type TokenLogprobs,
} from "./core.ts";
import type { CostModel } from "./cost/cost-model.ts";
import type { DeviceSpec } from "./device.ts";
import type { Placement } from "./dispatch/placement.ts";
import type { EngineLoad, EngineMessage, EngineReport } from "./messages.ts";
import type { PlacementPolicy } from "./policy.ts";

/** The way to one engine: a call, a thread, a process. Messages arrive in order, or the engine is reported
 *  lost. */
export interface EngineLink {
  send(message: EngineMessage): void;
}

/** Whoever wants a sequence's tokens. `onFinish` is the last call and comes exactly once; it may come from
 *  within `submit`. */
export interface SequenceListener {
  /** Admitted: computing begins. `cachedTokens` of the prompt need not be computed. */
  onStarted(cachedTokens: number): void;
  onToken(token: TokenId, logprobs: TokenLogprobs | null): void;
  onFinish(finish: Finish): void;
}

/** How a fleet places. */
export interface FleetOptions {
  /** Shortest queue by default. */
  readonly policy: PlacementPolicy;
  /** What is believed of each engine, by EngineId. Needed by policies that look at costs. */
  readonly costs: readonly CostModel[];
  /** Needed by policies that look at time. */
  readonly clock: Pick<Clock, "nowMs">;
  /** Told every placement, before the engine is. */
  readonly onPlacement: (sequence: SequenceId, placement: Placement) => void;
}

interface Placed {
  readonly engine: EngineId;
  readonly listener: SequenceListener;
  /** Prompt tokens not known to be computed, and output tokens that may still come. */
  outstanding: number;
  promptPending: number;
}

interface Member {
  readonly link: EngineLink;
  readonly spec: DeviceSpec;
  outstanding: number;
  load: EngineLoad;
  lostReason: string | null;
}

/**
 * All engines of this machine: gives out sequence ids, places sequences, hands their tokens to whoever
 * listens. Knows no threads: links carry messages one way, `report` and `lost` are called with what comes
 * back.
 *
 * Placement is in one place, `#place`: the engine with the fewest outstanding tokens, ties to the lowest id.
 */
export class Fleet {
  readonly #members: readonly Member[];
  readonly #placed = new Map<SequenceId, Placed>();
  #nextId = 0;

  constructor(
    engines: readonly { readonly link: EngineLink; readonly spec: DeviceSpec }[],
    _options: Partial<FleetOptions> = {},
  ) {
    assert(engines.length > 0, "a fleet has an engine");
    this.#members = engines.map(({ link, spec }) => ({
      link,
      spec,
      outstanding: 0,
      load: idleLoad(spec),
      lostReason: null,
    }));
  }

  /** Sequences that have not ended. */
  get active(): number {
    return this.#placed.size;
  }

  submit(spec: Omit<SequenceSpec, "id" | "drawnTokens">, listener: SequenceListener): SequenceId {
    const id = this.#nextId as SequenceId;
    this.#nextId += 1;
    const engine = this.#place();
    if (engine === null) {
      listener.onFinish({ kind: "failed", reason: this.#members[0]!.lostReason ?? "No engine is left." });
      return id;
    }
    const promptPending = spec.promptTokens.length;
    const outstanding = promptPending + spec.stop.tokensMax;
    this.#placed.set(id, { engine, listener, outstanding, promptPending });
    const member = this.#members[engine]!;
    member.outstanding += outstanding;
    member.link.send({ kind: "submit", sequence: { ...spec, drawnTokens: [], id } });
    return id;
  }

  /** The sequence is no longer wanted; does nothing if it has ended. Tokens on their way still arrive, then
   *  `aborted`. */
  abort(id: SequenceId): void {
    this.#send("abort", id);
  }

  /** Holds a sequence back whose reader is slow; does nothing if it has ended. */
  pause(id: SequenceId): void {
    this.#send("pause", id);
  }

  resume(id: SequenceId): void {
    this.#send("resume", id);
  }

  /** Takes what an engine has to tell and passes it on, in order. */
  report(engine: EngineId, report: EngineReport): void {
    const member = this.#members[engine]!;
    member.load = report.load;
    for (const { sequence, cachedTokens } of report.started) {
      this.#placed.get(sequence)?.listener.onStarted(cachedTokens);
    }
    for (let i = 0; i < report.tokens.length; i++) {
      const placed = this.#placed.get(report.sequences[i]!);
      if (placed === undefined) continue;
      this.#settle(placed, placed.promptPending + 1);
      placed.promptPending = 0;
      placed.listener.onToken(report.tokens[i]!, report.logprobs?.[i] ?? null);
    }
    for (const { sequence, finish } of report.finished) this.#finish(sequence, finish);
  }

  /** The engine is gone: everything there has failed, and nothing is placed there again. */
  lost(engine: EngineId, reason: string): void {
    const member = this.#members[engine]!;
    if (member.lostReason !== null) return;
    member.lostReason = reason;
    const there = [...this.#placed].filter(([, placed]) => placed.engine === engine);
    for (const [sequence] of there) this.#finish(sequence, { kind: "failed", reason });
  }

  /** What each engine told last, by EngineId. */
  loads(): readonly EngineLoad[] {
    return this.#members.map((member) => member.load);
  }

  #place(): EngineId | null {
    let best: number | null = null;
    this.#members.forEach((member, index) => {
      if (member.lostReason !== null) return;
      if (best === null || member.outstanding < this.#members[best]!.outstanding) best = index;
    });
    return best as EngineId | null;
  }

  #send(kind: "abort" | "pause" | "resume", id: SequenceId): void {
    const placed = this.#placed.get(id);
    if (placed !== undefined) this.#members[placed.engine]!.link.send({ kind, sequence: id });
  }

  #settle(placed: Placed, tokens: number): void {
    placed.outstanding -= tokens;
    this.#members[placed.engine]!.outstanding -= tokens;
  }

  #finish(sequence: SequenceId, finish: Finish): void {
    const placed = this.#placed.get(sequence);
    if (placed === undefined) return;
    this.#settle(placed, placed.outstanding);
    this.#placed.delete(sequence);
    placed.listener.onFinish(finish);
  }
}

function idleLoad(spec: DeviceSpec): EngineLoad {
  return {
    waiting: 0,
    running: 0,
    paused: 0,
    pagesTotal: spec.pages,
    pagesFree: spec.pages,
    pagesCached: 0,
    tokensPending: 0,
    stepsTotal: 0,
    promptTokensTotal: 0,
    generatedTokensTotal: 0,
    prefixQueriedTotal: 0,
    prefixHitTotal: 0,
    preemptionsTotal: 0,
    evictedPagesTotal: 0,
    stepsOverTarget: 0,
    skippedDecodesTotal: 0,
    stepTokens: 0,
    deviceMs: 0,
    stepMs: 0,
  };
}
