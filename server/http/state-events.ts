/** Events of `GET /state/stream`, as the page reads them. */
import type { CacheSnapshot, PricedEviction } from "../../scheduler/cache/cache-snapshot.ts";
import type { QueueRow } from "../../scheduler/fleet/present-sequences.ts";
import type { EngineLoad } from "../../scheduler/messages.ts";
import type { RunningRequest } from "../explain/running-requests.ts";
import type { Quantiles } from "./recent-quantiles.ts";
import type { JobsSnapshot, PlacementSnapshot, ServerFacts, Snapshot } from "./state.ts";

/** Views that are lists of entries with ids. */
export const listViews = ["requests", "programs", "jobs"] as const;
export type ListView = (typeof listViews)[number];

/** Parts of the state that a client asks for. */
export const stateViews = ["facts", "live", "cache", "top", ...listViews] as const;
export type StateView = (typeof stateViews)[number];

export type StateEvent =
  /** First, and after each change. */
  | { readonly kind: "facts"; readonly facts: FactsNow }
  /** Twice a second, to a sender who may see all keys' requests. */
  | ({ readonly kind: "live" } & LiveNow)
  /** Twice a second to those who ask for `top`, after `live`: the oldest requests that run. */
  | { readonly kind: "requests"; readonly requests: readonly RunningRequest[] }
  /** Every other second, if anything changed. */
  | ({ readonly kind: "cache" } & CachesNow)
  /** Every second, if anything changed: a list of the sender's key. */
  | ({ readonly kind: "list"; readonly view: ListView } & ListChange);

export interface CachesNow {
  /**
   * Prefix caches by engine. Those of a sender who may not see all keys' requests have the nodes of its key alone, no
   * evictions and no ages.
   */
  readonly caches: readonly (CacheNow | null)[];
  /** True if `caches` is empty because keys share their prefixes, so that a node belongs to no key. */
  readonly isWithheld: boolean;
  /** Prompts of today by key, those with the most tokens first; a sender's own, or all keys'. */
  readonly keys: readonly KeyHits[];
}

export interface CacheNow extends Omit<CacheSnapshot, "evictions" | "beginnings"> {
  /** True if an operator may read texts of nodes (`GET /v1/cache/text`). */
  readonly showsText: boolean;
  readonly evictions: readonly EvictionNow[];
}

export interface EvictionNow extends Omit<PricedEviction, "of" | "by"> {
  /** Names of the API key whose tokens were evicted, and of the one that needed the pages; null: none. */
  readonly of: string | null;
  readonly by: string | null;
  /** True if both have the same key and cache salt. */
  readonly isOwn: boolean;
}

export interface KeyHits {
  /** Name of the API key, as in `GET /v1/usage`; null: the server needs none. */
  readonly key: string | null;
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

export interface ListChange {
  /** Ids of all entries, in order. */
  readonly ids: readonly string[];
  /** Entries that are new or have changed since the last event. */
  readonly entries: readonly ListEntry[];
  /** Error message in place of the list; null: there is a list. */
  readonly problem: string | null;
}

export interface ListEntry {
  readonly id: string;
}

export interface FactsNow extends Omit<ServerFacts, "timeMs"> {
  /** Sentence why the server accepts no work; null: it does. */
  readonly refusal: string | null;
  /** True if the sender may see all keys' requests. */
  readonly isAdmin: boolean;
}

export interface LiveNow {
  /** Milliseconds since the server started. */
  readonly timeMs: number;
  /** Target of the inter-token latency (`--tbt-ms`); null: there is none. */
  readonly targetMs: number | null;
  /** Engines by id. */
  readonly engines: readonly EngineNow[];
  /** Largest groups of waiting sequences. */
  readonly queue: readonly QueueRow[];
  /** Quantiles of TTFT and inter-token latency over the last ten seconds; null: no observations. */
  readonly firstToken: Quantiles | null;
  readonly betweenTokens: Quantiles | null;
  /** The last placements, newest first. */
  readonly placements: readonly PlacementSnapshot[];
  readonly jobs: JobsSnapshot | null;
  /** Tokens computed for answers that have ended, of requests and of jobs. */
  readonly computed: Snapshot["computed"];
}

export interface EngineNow {
  readonly name: string;
  readonly load: Pick<EngineLoad, (typeof shownLoad)[number]>;
  /** Steps since the last event. */
  readonly steps: readonly StepBar[];
}

/** Parts of a load that are sent. */
export const shownLoad = [
  "waiting",
  "running",
  "paused",
  "pagesTotal",
  "pagesFree",
  "pagesCached",
  "stepsTotal",
  "stepTokens",
  "deviceMs",
  "stepMs",
  "promptTokensTotal",
  "generatedTokensTotal",
  "prefixQueriedTotal",
  "prefixHitTotal",
  "preemptionsTotal",
  "evictedPagesTotal",
  "tierStoredPagesTotal",
  "tierLoadedPagesTotal",
  "tierHostPagesTotal",
  "draftTokensTotal",
  "acceptedTokensTotal",
] as const satisfies readonly (keyof EngineLoad)[];

/**
 * Step, or consecutive steps added up. It has the end on the clock of `timeMs`, the duration, and tokens of
 * decodes, prefill, prefetched prefixes and drafts. Then come evicted pages, preemptions, and steps over their target.
 */
export type StepBar = readonly [
  endMs: number,
  ms: number,
  decodes: number,
  prompt: number,
  warmed: number,
  drafts: number,
  evicted: number,
  preempted: number,
  late: number,
];
