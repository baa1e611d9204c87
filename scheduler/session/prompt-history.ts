import type { TokenId } from "../../base/token.ts";
import type { AdapterId, EngineId } from "../core.ts";
import type { HashedTokens } from "./hashed-tokens.ts";

/** A prompt that was admitted, followed by the tokens of its answer once that has ended. */
export interface PastPrompt {
  readonly tenant: string;
  readonly salt: string;
  readonly adapter: AdapterId;
  readonly engine: EngineId;
  /** Incarnation of the engine. */
  readonly epoch: number;
  /** Session that it is a turn of; null: none. */
  readonly session: number | null;
  /** Tokens with computed keys and values; more after the end. */
  tokens: HashedTokens;
  isRunning: boolean;
  /** True if the engine's memory was freed since. */
  isLost: boolean;
  /** Time at which its answer ended, in milliseconds of its owner's clock. */
  endedMs: number;
  /** Pages that the engine had evicted by then. */
  evictedPages: number;
  /** Tokens that had been computed for the tenant by then. */
  tenantTokens: number;
}

/** An earlier prompt, and the number of tokens with which a later one begins like it. */
export interface Nearest {
  readonly past: PastPrompt;
  readonly shared: number;
}

/** Most that a history holds. */
export interface HistoryLimits {
  /** Prompts of one tenant. */
  readonly promptsMax: number;
  /** Tokens of all tenants together. */
  readonly tokensMax: number;
}

const defaultLimits: HistoryLimits = { promptsMax: 256, tokensMax: 4 * 2 ** 20 };

/**
 * The last prompts of each tenant. A prompt replaces the one that it continues, so that a conversation is one
 * entry. Evicts the least recently used entries.
 */
export class PromptHistory {
  readonly #limits: HistoryLimits;
  /** All entries, least recently used first. */
  readonly #all = new Set<PastPrompt>();
  readonly #byTenant = new Map<string, Set<PastPrompt>>();
  #tokens = 0;

  constructor(limits: Partial<HistoryLimits> = {}) {
    this.#limits = { ...defaultLimits, ...limits };
  }

  /** Entry of the tenant with the longest common beginning; null if none shares a token. */
  nearest(tenant: string, prompt: HashedTokens, isMeant: (past: PastPrompt) => boolean): Nearest | null {
    let found: PastPrompt | null = null;
    let shared = 0;
    for (const past of this.#byTenant.get(tenant) ?? []) {
      if (!isMeant(past)) continue;
      const length = prompt.sharedWith(past.tokens);
      if (length > shared) [found, shared] = [past, length];
    }
    return found === null ? null : { past: found, shared };
  }

  /** Adds a prompt. If it continues an ended one, its `nearest`, it replaces that. */
  begin(past: PastPrompt, nearest: Nearest | null): void {
    if (nearest !== null) {
      this.touch(nearest.past);
      if (!nearest.past.isRunning && nearest.shared === nearest.past.tokens.length) this.remove(nearest.past);
    }
    this.add(past);
  }

  /** Adds the tokens of a prompt's answer. The last drawn token was never computed. */
  end(past: PastPrompt, drawn: readonly TokenId[]): void {
    past.isRunning = false;
    // Without a token, some of the prompt may not have been computed.
    if (drawn.length === 0) this.remove(past);
    else this.extend(past, past.tokens.with(drawn.slice(0, -1)));
  }

  add(past: PastPrompt): void {
    let own = this.#byTenant.get(past.tenant);
    if (own === undefined) {
      own = new Set();
      this.#byTenant.set(past.tenant, own);
    }
    this.#all.add(past);
    own.add(past);
    this.#tokens += past.tokens.length;
    if (own.size > this.#limits.promptsMax) this.remove(own.values().next().value!);
    this.#shrink();
  }

  /** Replaces the tokens of an entry, if it is still known. */
  extend(past: PastPrompt, tokens: HashedTokens): void {
    if (!this.#all.has(past)) return;
    this.#tokens += tokens.length - past.tokens.length;
    past.tokens = tokens;
    this.#shrink();
  }

  /** Makes an entry the most recently used one. */
  touch(past: PastPrompt): void {
    const own = this.#byTenant.get(past.tenant);
    if (own === undefined || !this.#all.delete(past)) return;
    this.#all.add(past);
    own.delete(past);
    own.add(past);
  }

  remove(past: PastPrompt): void {
    if (!this.#all.delete(past)) return;
    this.#tokens -= past.tokens.length;
    const own = this.#byTenant.get(past.tenant)!;
    own.delete(past);
    if (own.size === 0) this.#byTenant.delete(past.tenant);
  }

  /** True if an entry was not evicted. */
  has(past: PastPrompt): boolean {
    return this.#all.has(past);
  }

  /** Marks all entries as lost: the engines' memory was freed. */
  loseAll(): void {
    for (const past of this.#all) past.isLost = true;
  }

  /** Tokens of all entries. */
  get tokens(): number {
    return this.#tokens;
  }

  #shrink(): void {
    while (this.#tokens > this.#limits.tokensMax) this.remove(this.#all.values().next().value!);
  }
}
