import type { TokenId } from "../../base/token.ts";
import type { SessionPlace } from "../../scheduler/core.ts";
import type { SessionSign } from "../../scheduler/session/session-table.ts";

/**
 * Reason why tokens of a prompt were not found in the prefix cache:
 *
 * - `differs`: the key's nearest earlier prompt has another token there;
 * - `new`: no earlier prompt of the key reached as far;
 * - `evicted`: they were computed, and pages were evicted since;
 * - `not_kept`: they stood in an earlier prompt, and nothing was evicted: it failed, or was aborted before;
 * - `running`: an earlier prompt with them is still being computed;
 * - `lost`: the engine was replaced, or the model loaded again, since;
 * - `other_engine`: they were computed on another engine;
 * - `partial_page`: they are cached, but the page that they share could not be copied;
 * - `no_checkpoint`: they are cached, but no checkpoint of the recurrent state stands there;
 * - `salt`: the key's earlier prompt with them had another cache salt;
 * - `prompt_logprobs`: the request asked for log probabilities of its prompt, which is then computed.
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

/** Account of one prompt: which of its tokens were cached, and why the others were not. */
export interface CacheOutcome {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  /** Tokens among them that were loaded from the lower tier, and those of them from the host's memory. */
  readonly tierTokens: number;
  readonly hostTokens: number;
  /** In the order of the prompt, without gaps; empty if all but the last token were cached, which never is. */
  readonly misses: readonly CacheMiss[];
  /** The nearest earlier prompt of the key; null: there is none. */
  readonly earlier: EarlierPrompt | null;
  /** Session of the prompt, and what told it; null: it belongs to none. */
  readonly session: (SessionPlace & { readonly by: SessionSign }) | null;
}

export interface EarlierPrompt {
  /** Tokens with which both begin. */
  readonly shared: number;
  /** Milliseconds since its answer ended; null: it runs. */
  readonly endedAgoMs: number | null;
  /** Tokens computed for the key since then. */
  readonly ownTokensSince: number;
  /** Its tokens around the place where the prompts part, which is at index `at`. */
  readonly around: readonly TokenId[];
  readonly at: number;
}

/** Cached tokens by where they were: the engine's own memory, the host's, or a disk. */
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

/** Reason and place of the end of the match. */
export function endOf([first]: readonly CacheMiss[]): string {
  return first === undefined ? "whole" : `${first.reason}@${first.from}`;
}
