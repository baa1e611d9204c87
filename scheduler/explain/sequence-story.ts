import type { EngineId } from "../core.ts";
import { addMs, CAUSES, causeIndex, fitMs } from "./causes.ts";
import type { AccountState, Blocker } from "./time-account.ts";

/** Time of a sequence by cause, from its submission to the fleet on. */
export interface Story {
  /** Times of its submission and of now or its end, on the fleet's clock. */
  readonly openedMs: number;
  readonly atMs: number;
  /** Milliseconds by cause; they sum to the time in between. */
  readonly ms: Float64Array;
  /** The same up to its first token; null: it has drawn none. */
  readonly first: { readonly atMs: number; readonly ms: Float64Array } | null;
  /** Engines on which it was, in order. */
  readonly engines: readonly EngineId[];
  readonly computedTokens: number;
  readonly recomputedTokens: number;
  readonly lateTokens: number;
  readonly lateMs: number;
  readonly preemptions: number;
  readonly behind: Blocker | null;
  readonly prefixOwner: Blocker | null;
}

type Sums = Pick<
  Story,
  "computedTokens" | "recomputedTokens" | "lateTokens" | "lateMs" | "preemptions" | "behind" | "prefixOwner"
>;

const noSums: Sums = {
  computedTokens: 0,
  recomputedTokens: 0,
  lateTokens: 0,
  lateMs: 0,
  preemptions: 0,
  behind: null,
  prefixOwner: null,
};

/**
 * Joins the accounts of a sequence's stays on engines with the time in between. Only the fleet sees that time: messages
 * in transit, lost engines, and waits for a replacement.
 */
export class SequenceStory {
  /** Time of its submission. */
  readonly openedMs: number;
  /** Time up to which `#ms` accounts for all. */
  #closedMs: number;
  readonly #ms = new Float64Array(CAUSES);
  #sums = noSums;
  /** The last account of the present stay; null: there is none yet. */
  #life: AccountState | null = null;
  #isPlaced = false;
  /** True if it has lost its engine, or found none. */
  #lacksEngine = false;
  #first: Story["first"] = null;
  readonly #engines: EngineId[] = [];

  constructor(nowMs: number) {
    this.openedMs = nowMs;
    this.#closedMs = nowMs;
  }

  /** Records that the sequence is sent to an engine. */
  placed(engine: EngineId, nowMs: number): void {
    this.#close(nowMs, this.#between);
    this.#isPlaced = true;
    this.#lacksEngine = false;
    if (this.#engines.at(-1) !== engine) this.#engines.push(engine);
  }

  /** Takes an account that its engine has reported. */
  took(account: AccountState, isFirst: boolean, nowMs: number): void {
    this.#life = account;
    if (isFirst && this.#first === null)
      this.#first = { atMs: nowMs, ms: this.#msAt(nowMs, causeIndex.handing_over) };
  }

  /** Records that its engine has returned it, or was lost. That event is also the cause of time without an account. */
  left(how: "returned" | "lost", nowMs: number): void {
    this.#close(nowMs, how === "lost" ? causeIndex.engine_lost : causeIndex.handing_over);
    this.#isPlaced = false;
    this.#lacksEngine = how === "lost";
  }

  /** Records that there is no engine for it now. */
  waits(): void {
    this.#lacksEngine = true;
  }

  /** The story up to now. `hasEnded`: true after its engine has reported its end. */
  now(nowMs: number, hasEnded: boolean): Story {
    // Time since the last account of a running sequence is not divided yet.
    const running = this.#first === null ? causeIndex.step_in_flight : causeIndex.decode;
    const rest = hasEnded || this.#life === null ? causeIndex.handing_over : running;
    return {
      openedMs: this.openedMs,
      atMs: nowMs,
      ms: this.#msAt(nowMs, this.#isPlaced ? rest : this.#between),
      first: this.#first,
      engines: [...this.#engines],
      ...summed(this.#sums, this.#life),
    };
  }

  /** Cause of the time between two engines. */
  get #between(): number {
    return this.#lacksEngine ? causeIndex.engine_lost : causeIndex.handing_over;
  }

  #close(nowMs: number, rest: number): void {
    this.#ms.set(this.#msAt(nowMs, rest));
    this.#sums = summed(this.#sums, this.#life);
    this.#life = null;
    this.#closedMs = nowMs;
  }

  /** Milliseconds by cause up to now. Time without an account goes to the cause `rest`. */
  #msAt(nowMs: number, rest: number): Float64Array {
    const ms = new Float64Array(CAUSES);
    if (this.#life !== null) ms.set(this.#life.ms);
    fitMs(ms, Math.max(0, nowMs - this.#closedMs), rest);
    addMs(ms, this.#ms);
    return ms;
  }
}

function summed(sums: Sums, life: AccountState | null): Sums {
  if (life === null) return sums;
  return {
    computedTokens: sums.computedTokens + life.computedTokens,
    recomputedTokens: sums.recomputedTokens + life.recomputedTokens,
    lateTokens: sums.lateTokens + life.lateTokens,
    lateMs: sums.lateMs + life.lateMs,
    preemptions: sums.preemptions + life.preemptions,
    behind: longer(sums.behind, life.behind),
    prefixOwner: longer(sums.prefixOwner, life.prefixOwner),
  };
}

function longer(a: Blocker | null, b: Blocker | null): Blocker | null {
  return a === null || (b !== null && b.ms > a.ms) ? b : a;
}
