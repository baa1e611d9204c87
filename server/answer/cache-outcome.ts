import type { TokenId } from "../../base/token.ts";
import type { SessionPlace } from "../../scheduler/core.ts";
import type { SessionSign } from "../../scheduler/session/session-table.ts";

/**
 * Reason why tokens of a prompt were not found in the prefix cache:
 *
 * - `differs`: the API key's nearest earlier prompt has another token there;
 * - `new`: no earlier prompt of the API key is as long;
 * - `evicted`: they were computed, and pages were evicted since;
 * - `not_kept`: an earlier prompt has them, and no page was evicted: it failed or was aborted before they were
 *   computed;
 * - `running`: an earlier prompt with them is still being computed;
 * - `lost`: the engine was replaced, or the model loaded again, since;
 * - `other_engine`: they were computed on another engine;
 * - `partial_page`: they are cached in a partly matching page, which could not be copied;
 * - `no_checkpoint`: they are cached, but the recurrent state has no checkpoint at their end;
 * - `adapter`: an earlier prompt with them was computed with another LoRA adapter, or without one;
 * - `salt`: the API key's earlier prompt with them had another cache salt;
 * - `prompt_logprobs`: the request asked for prompt logprobs, for which the whole prompt is computed.
 */
export const missReasons = [
  "differs",
  "new",
  "evicted",
  "not_kept",
  "running",
  "lost",
  "other_engine",
  "partial_page",
  "no_checkpoint",
  "adapter",
  "salt",
  "prompt_logprobs",
] as const;

export type MissReason = (typeof missReasons)[number];

/** Tokens [from, from + tokens) of a prompt that were computed for one reason. */
export interface CacheMiss {
  readonly reason: MissReason;
  readonly from: number;
  readonly tokens: number;
  /** Predicted milliseconds of computing them. */
  readonly costMs: number;
}

/** Prefix-cache result of one prompt: its cached tokens, and the reasons for the others. */
export interface CacheOutcome {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  /** Cached tokens that were loaded from a lower tier (host memory or disk), and those of them from host memory. */
  readonly tierTokens: number;
  readonly hostTokens: number;
  /** In prompt order, without gaps. Empty if only the last token was computed: it always is. */
  readonly misses: readonly CacheMiss[];
  /** Earlier prompt of the API key with the longest common prefix; null: there is none. */
  readonly earlier: EarlierPrompt | null;
  /** Session of the prompt, and the sign by which it was recognised; null: it belongs to none. */
  readonly session: (SessionPlace & { readonly by: SessionSign }) | null;
}

export interface EarlierPrompt {
  /** Length of the common prefix in tokens. */
  readonly shared: number;
  /** Milliseconds since its answer ended; null: it runs. */
  readonly endedAgoMs: number | null;
  /** Tokens computed for the API key since then. */
  readonly ownTokensSince: number;
  /** Its tokens around the first one that differs, which is `around[at]`. */
  readonly around: readonly TokenId[];
  readonly at: number;
}

/** Cached tokens by the tier that held them: the engine's own memory, host memory, or disk. */
export interface FoundTokens {
  readonly memory: number;
  readonly host: number;
  readonly disk: number;
}

export function foundTokens({
  cachedTokens,
  tierTokens,
  hostTokens,
}: Pick<CacheOutcome, "cachedTokens" | "tierTokens" | "hostTokens">): FoundTokens {
  return { memory: cachedTokens - tierTokens, host: hostTokens, disk: tierTokens - hostTokens };
}

/**
 * Outcome in a few words: `hit=1234 of 1300; host=300; disk=400; ended=differs@1234`, where 300 came from the host's
 * memory and 400 from a disk.
 */
export function briefOutcome(outcome: CacheOutcome): string {
  const { promptTokens, cachedTokens, misses } = outcome;
  const { host, disk } = foundTokens(outcome);
  const tiers = `${host === 0 ? "" : `host=${host}; `}${disk === 0 ? "" : `disk=${disk}; `}`;
  return `hit=${cachedTokens} of ${promptTokens}; ${tiers}ended=${endOf(misses)}`;
}

/** Reason and token index of the first miss, such as `differs@1234`; `whole` if there is none. */
export function endOf([first]: readonly CacheMiss[]): string {
  return first === undefined ? "whole" : `${first.reason}@${first.from}`;
}
