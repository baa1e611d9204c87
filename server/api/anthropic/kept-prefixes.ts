import type { Cancel, Clock } from "../../../base/clock.ts";
import type { TokenId } from "../../../base/token.ts";
import type { AdapterId, SequenceId } from "../../../scheduler/core.ts";
import type { DeviceSpec } from "../../../scheduler/device.ts";
import type { Fleet } from "../../../scheduler/fleet/fleet.ts";
import { realClock } from "../../real-clock.ts";

/** Divisor of the KV-cache tokens of all engines; the quotient is the limit of one API key. */
const KEPT_PART = 4;
/** Kept prefixes per key at most. */
const KEPT_MAX = 256;

/** Owner of a prefix: a key, and what prompts must have in common with it to share its pages. */
interface Owner {
  readonly tenant: string;
  readonly cacheSalt: string;
  readonly adapter: AdapterId;
}

interface Kept {
  readonly id: SequenceId;
  readonly cacheSalt: string;
  readonly adapter: AdapterId;
  readonly tokens: Int32Array;
  readonly untilMs: number;
  readonly cancel: Cancel;
}

/**
 * Prompt prefixes that clients have marked with `cache_control`. Until a mark expires, a hint makes the engines
 * evict the prefix last. The hint reserves no pages and delays no request. An API key has a token limit, beyond
 * which its oldest marks are dropped.
 */
export class KeptPrefixes {
  readonly #fleet: Pick<Fleet, "expect" | "forget">;
  readonly #clock: Clock;
  readonly #tokensMax: number;
  /** Prefixes by key, the most recently marked one last. */
  readonly #kept = new Map<string, Kept[]>();

  /** `specs`: of the fleet's devices. */
  constructor(
    fleet: Pick<Fleet, "expect" | "forget">,
    specs: readonly DeviceSpec[],
    clock: Clock = realClock,
  ) {
    this.#fleet = fleet;
    this.#clock = clock;
    const tokens = specs.reduce((sum, { pages, pageTokens }) => sum + pages * pageTokens, 0);
    this.#tokensMax = Math.floor(tokens / KEPT_PART);
  }

  /** Kept tokens of a key. A prefix shared by two prompts counts twice. */
  tokensOf(tenant: string): number {
    return (this.#kept.get(tenant) ?? []).reduce((sum, { tokens }) => sum + tokens.length, 0);
  }

  /** Keeps a prefix for `ttlMs`, cut to the key's token limit. Drops older marks of the key to make room. */
  keep({ tenant, cacheSalt, adapter }: Owner, prefix: readonly TokenId[], ttlMs: number): void {
    const tokens = Int32Array.from(prefix.slice(0, this.#tokensMax));
    const untilMs = this.#clock.nowMs() + ttlMs;
    const own = this.#kept.get(tenant) ?? [];
    const shares = (one: Kept): boolean => one.cacheSalt === cacheSalt && one.adapter === adapter;
    const holds = (one: Kept): boolean =>
      shares(one) && one.untilMs >= untilMs && beginsWith(one.tokens, tokens);
    if (tokens.length === 0 || own.some(holds)) return;
    for (const one of [...own])
      if (shares(one) && one.untilMs <= untilMs && beginsWith(tokens, one.tokens)) this.#drop(tenant, one);
    while (own.length === KEPT_MAX || this.tokensOf(tenant) + tokens.length > this.#tokensMax)
      this.#drop(tenant, own[0]!);
    const hint = { tokens, cacheSalt, adapter, program: null, isWarmed: false };
    const kept: Kept = {
      id: this.#fleet.expect(hint),
      cacheSalt,
      adapter,
      tokens,
      untilMs,
      cancel: this.#clock.after(ttlMs, () => this.#drop(tenant, kept)),
    };
    own.push(kept);
    this.#kept.set(tenant, own);
  }

  #drop(tenant: string, kept: Kept): void {
    kept.cancel();
    this.#fleet.forget(kept.id);
    const own = this.#kept.get(tenant)!;
    own.splice(own.indexOf(kept), 1);
    if (own.length === 0) this.#kept.delete(tenant);
  }
}

function beginsWith(tokens: Int32Array, beginning: Int32Array): boolean {
  return beginning.length <= tokens.length && beginning.every((token, index) => token === tokens[index]);
}
