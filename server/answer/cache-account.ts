import type { TokenId } from "../../base/token.ts";
import type { AdapterId, EngineId } from "../../scheduler/core.ts";
import { promptMs } from "../../scheduler/cost/cost-model.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import type { Fleet, StartedAt } from "../../scheduler/fleet/fleet.ts";
import type { HashedTokens } from "../../scheduler/session/hashed-tokens.ts";
import { type Nearest, type PastPrompt, PromptHistory } from "../../scheduler/session/prompt-history.ts";
import type { Turn } from "../../scheduler/session/session-table.ts";
import type { CacheMiss, CacheOutcome, EarlierPrompt, MissReason } from "./cache-outcome.ts";

/** Tokens of an earlier prompt to report on each side of the first one in which a later prompt differs. */
const AROUND_TOKENS = 24;

/** Prompt whose first sequence an engine has admitted. */
export interface StartedPrompt {
  readonly tokens: HashedTokens;
  readonly tenant: string;
  readonly salt: string;
  readonly adapter: AdapterId;
  /** Turn of a session; null: it belongs to none. */
  readonly turn: Turn | null;
  readonly hasLogprobs: boolean;
  /** False for offline requests, whose many prompts would displace those of online ones from the history. */
  readonly isKept: boolean;
}

/** Earlier prompts that begin most alike: one that could share pages, one of another adapter, one of another salt. */
interface NearestPrompts {
  readonly same: Nearest | null;
  readonly adapted: Nearest | null;
  readonly salted: Nearest | null;
}

/** Fleet methods that report the engines' state. */
export type AccountFleet = Pick<Fleet, "loads" | "estimated" | "epochOf">;

/**
 * Explains prefix-cache misses by the tenant's own earlier prompts. It reveals one bit about other tenants:
 * whether the engine has evicted any page since.
 */
export class CacheAccount {
  readonly #fleet: AccountFleet;
  readonly #specs: readonly DeviceSpec[];
  readonly #history: PromptHistory;
  readonly #onOutcome: (outcome: CacheOutcome, engine: EngineId) => void;
  /** Tokens computed so far (uncached prompt and output tokens), by tenant. */
  readonly #computed = new Map<string, number>();

  constructor(
    fleet: AccountFleet,
    specs: readonly DeviceSpec[],
    onOutcome: (outcome: CacheOutcome, engine: EngineId) => void,
    history: PromptHistory = new PromptHistory(),
  ) {
    this.#fleet = fleet;
    this.#specs = specs;
    this.#onOutcome = onOutcome;
    this.#history = history;
  }

  /**
   * Explains the misses of an admitted prompt. Also returns its history entry, which the caller passes to
   * `ended`; null if the history does not keep the prompt.
   */
  started(prompt: StartedPrompt, cachedTokens: number, at: StartedAt): [CacheOutcome, PastPrompt | null] {
    const { tenant, salt, adapter, tokens, turn } = prompt;
    const nearest = (isMeant: (past: PastPrompt) => boolean) =>
      this.#history.nearest(tenant, tokens, isMeant);
    const same = nearest((past) => past.salt === salt && past.adapter === adapter);
    const adapted = nearest((past) => past.salt === salt && past.adapter !== adapter);
    const salted = nearest((past) => past.salt !== salt);
    const outcome = this.#outcome(prompt, cachedTokens, at, { same, adapted, salted });
    this.#onOutcome(outcome, at.engine);
    this.#count(tenant, tokens.length - cachedTokens);
    if (!prompt.isKept || prompt.hasLogprobs) {
      if (same !== null) this.#history.touch(same.past);
      return [outcome, null];
    }
    const past: PastPrompt = {
      ...{ tenant, salt, adapter, engine: at.engine, epoch: this.#fleet.epochOf(at.engine) },
      ...{ session: turn?.place.id ?? null, tokens, isRunning: true, isLost: false },
      ...this.#now(tenant, at.engine),
    };
    this.#history.begin(past, same);
    return [outcome, past];
  }

  /** Ends a prompt's history entry. `drawn`: its output tokens. */
  ended(past: PastPrompt, drawn: readonly TokenId[]): void {
    this.#count(past.tenant, drawn.length);
    Object.assign(past, this.#now(past.tenant, past.engine));
    this.#history.end(past, drawn);
  }

  #outcome(
    { tokens, hasLogprobs, turn }: StartedPrompt,
    cachedTokens: number,
    { engine, matchedTokens, tierTokens, hostTokens }: StartedAt,
    { same, adapted, salted }: NearestPrompts,
  ): CacheOutcome {
    const { length: promptTokens } = tokens;
    let nearest = same;
    for (const other of [adapted, salted])
      if (other !== null && other.shared > (nearest?.shared ?? 0)) nearest = other;
    const misses: CacheMiss[] = [];
    let from = cachedTokens;
    const missed = (reason: MissReason, end: number): void => {
      const count = Math.min(end, promptTokens) - from;
      if (count <= 0) return;
      const costMs = promptMs(this.#fleet.estimated[engine]!, count, from);
      misses.push({ reason, from, tokens: count, costMs });
      from += count;
    };
    // The last token of a prompt is always computed.
    if (cachedTokens < promptTokens - 1) {
      if (hasLogprobs) missed("prompt_logprobs", promptTokens);
      missed(this.#specs[engine]!.states === undefined ? "partial_page" : "no_checkpoint", matchedTokens);
      if (same !== null) missed(this.#lossOf(same.past, engine), same.shared);
      if (adapted !== null) missed("adapter", adapted.shared);
      if (salted !== null) missed("salt", salted.shared);
      missed(nearest !== null && partsAt(nearest, from) ? "differs" : "new", promptTokens);
    }
    const earlier = nearest === null ? null : this.#earlier(nearest);
    const session = turn === null ? null : { ...turn.place, by: turn.by };
    return { promptTokens, cachedTokens, tierTokens, hostTokens, misses, earlier, session };
  }

  /** Reason why tokens of an earlier prompt are no longer cached. */
  #lossOf(past: PastPrompt, engine: EngineId): MissReason {
    if (past.isLost || past.epoch !== this.#fleet.epochOf(past.engine)) return "lost";
    if (past.engine !== engine) return "other_engine";
    if (past.isRunning) return "running";
    return this.#evictedBy(engine) > past.evictedPages ? "evicted" : "not_kept";
  }

  #earlier({ past, shared }: Nearest): EarlierPrompt {
    const start = Math.max(0, shared - AROUND_TOKENS);
    return {
      shared,
      endedAgoMs: past.isRunning ? null : performance.now() - past.endedMs,
      ownTokensSince: (this.#computed.get(past.tenant) ?? 0) - past.tenantTokens,
      around: Array.from(past.tokens.values.subarray(start, shared + AROUND_TOKENS)),
      at: shared - start,
    };
  }

  #now(tenant: string, engine: EngineId): Pick<PastPrompt, "endedMs" | "evictedPages" | "tenantTokens"> {
    return {
      endedMs: performance.now(),
      evictedPages: this.#evictedBy(engine),
      tenantTokens: this.#computed.get(tenant) ?? 0,
    };
  }

  #evictedBy(engine: EngineId): number {
    return this.#fleet.loads()[engine]!.evictedPagesTotal;
  }

  #count(tenant: string, tokens: number): void {
    this.#computed.set(tenant, (this.#computed.get(tenant) ?? 0) + tokens);
  }
}

/** True if a prompt and its nearest earlier one have different tokens at index `place`. */
function partsAt({ past, shared }: Nearest, place: number): boolean {
  return place === shared && shared < past.tokens.length;
}
