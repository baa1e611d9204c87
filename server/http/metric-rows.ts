/** Tables of the server's metrics: names, sentences, labels and buckets. */
import type { EngineLoad } from "../../scheduler/messages.ts";
import type { UseSums } from "../usage/use.ts";

const latencyBuckets = [
  0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
];
const firstTokenBuckets = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640,
  2560,
];
const betweenTokensBuckets = [
  0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
];
const fineBuckets = [
  0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1,
  2, 5, 10,
];
const stepTokensBuckets = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];
/** 1, 2, 5, 10, 20, 50 … up to 200,000, as vLLM counts tokens. */
const tokensBuckets = [1, 10, 100, 1000, 10_000, 100_000]
  .flatMap((ten) => [ten, 2 * ten])
  .concat([5, 50, 500, 5000, 50_000])
  .sort((a, b) => a - b);

export const ofEngine = ["model_name", "engine"] as const;

export type CounterRow = readonly [name: string, help: string, labels: readonly string[]];
export type HistogramRow = readonly [...CounterRow, buckets: readonly number[]];
/** Histogram of an answer; all answers share its labels. */
export type AnswerRow = readonly [name: string, help: string, buckets: readonly number[]];
export type PartRow = readonly [
  name: string,
  help: string,
  label: string,
  read: (load: EngineLoad) => Readonly<Record<string, number>>,
];
type EngineRow = readonly [name: string, help: string, read: (load: EngineLoad) => number];

/** Metrics counted at each event. */
export const counters = {
  finished: [
    "vllm:request_success_total",
    "Choices that ended, by reason.",
    [...ofEngine, "finished_reason"],
  ],
  placements: ["bunting_placements_total", "Sequences placed, by engine and reason.", ["engine", "reason"]],
  tokens: [
    "bunting_work_tokens_total",
    "Tokens of answers that have ended, of requests and of jobs: prompt_computed, prompt_cached, generated.",
    ["work", "part"],
  ],
  cacheMisses: [
    "bunting_cache_miss_total",
    "Prompts of which the prefix cache lacked tokens, by reason; a prompt may have several.",
    ["reason"],
  ],
  cacheMissTokens: [
    "bunting_cache_miss_tokens_total",
    "Prompt tokens that the prefix cache lacked, by reason.",
    ["reason"],
  ],
  sessionTurns: [
    "bunting_session_turns_total",
    "Prompts of sessions, by what told their session: continued, branched, named, new.",
    ["by"],
  ],
  sessionsKept: [
    "bunting_sessions_kept_total",
    "Sessions whose pages were kept between turns: kept, then returned or given_up.",
    ["event"],
  ],
  causes: [
    "bunting_request_seconds_total",
    "Time of requests that have ended, from their heads to their last bytes, by cause.",
    ["cause"],
  ],
  restarts: ["bunting_engine_restarts_total", "Lost engines that were replaced.", ["engine"]],
  disk: [
    "bunting_kv_disk_total",
    "KV pages on disk: stored, read, damaged, failedReads, failedWrites; and droppedSegments, files of pages.",
    ["engine", "event"],
  ],
  host: [
    "bunting_kv_host_total",
    "KV pages in the host's memory: stored, read; and dropped for others.",
    ["engine", "event"],
  ],
  cachedPrompt: [
    "vllm:prompt_tokens_cached_by_source_total",
    "Prompt tokens found in the cache, by where they were: device (the engine's memory), host or disk.",
    [...ofEngine, "source"],
  ],
  http: [
    "http_requests_total",
    "HTTP requests answered, by status (2xx) and its code (200).",
    ["handler", "method", "status", "code"],
  ],
} as const satisfies Record<string, CounterRow>;

export const serverHistograms = {
  httpSeconds: [
    "http_request_duration_seconds",
    "From a request's head to the head of its answer.",
    ["handler", "method"],
    [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300],
  ],
  stepTokens: ["vllm:iteration_tokens_total", "Tokens in a step.", ofEngine, stepTokensBuckets],
  stepSeconds: [
    "bunting_step_seconds",
    "Time of a step: inside the device, and from its start to its report.",
    ["engine", "part"],
    fineBuckets,
  ],
} as const satisfies Record<string, HistogramRow>;

/** Histograms of an answer. */
export const answerHistograms = {
  firstToken: ["vllm:time_to_first_token_seconds", "From arrival to the first token.", firstTokenBuckets],
  firstTokenFine: ["bunting_time_to_first_token_seconds", "The same in finer buckets.", fineBuckets],
  betweenTokens: ["vllm:inter_token_latency_seconds", "Between two tokens.", betweenTokensBuckets],
  betweenTokensFine: ["bunting_inter_token_seconds", "The same in finer buckets.", fineBuckets],
  endToEnd: ["vllm:e2e_request_latency_seconds", "From arrival to the end.", latencyBuckets],
  queue: ["vllm:request_queue_time_seconds", "From arrival to admission.", latencyBuckets],
  inference: ["vllm:request_inference_time_seconds", "From admission to the end.", latencyBuckets],
  prefill: ["vllm:request_prefill_time_seconds", "From admission to first token.", latencyBuckets],
  decode: ["vllm:request_decode_time_seconds", "From first token to end.", latencyBuckets],
  promptTokens: ["vllm:request_prompt_tokens", "Prompt tokens.", tokensBuckets],
  generationTokens: ["vllm:request_generation_tokens", "Tokens generated.", tokensBuckets],
  longestChoice: [
    "vllm:request_max_num_generation_tokens",
    "Tokens generated for the longest choice.",
    tokensBuckets,
  ],
  computedPrompt: [
    "vllm:request_prefill_kv_computed_tokens",
    "Prompt tokens that were not cached.",
    tokensBuckets,
  ],
  tokenSeconds: [
    "vllm:request_time_per_output_token_seconds",
    "Mean time of a choice's tokens after its first; 0 if there is one token.",
    betweenTokensBuckets,
  ],
  choices: ["vllm:request_params_n", "Choices asked for.", [1, 2, 5, 10, 20, 50, 128]],
  tokensMax: ["vllm:request_params_max_tokens", "Most tokens asked for.", tokensBuckets],
} as const satisfies Record<string, AnswerRow>;

/** Metrics read at a scrape. */
export const engineGauges: readonly EngineRow[] = [
  ["vllm:num_requests_running", "Sequences that are being computed.", (load) => load.running],
  ["vllm:num_requests_waiting", "Sequences that wait to be admitted.", (load) => load.waiting],
  ["vllm:kv_cache_usage_perc", "Share of KV pages owned by sequences, 0 to 1.", usedShare],
  ["bunting_sequences_paused", "Sequences whose readers are slow.", (load) => load.paused],
  ["bunting_pages_free", "KV pages that hold nothing.", (load) => load.pagesFree],
  ["bunting_pages_cached", "KV pages that only the prefix cache holds.", (load) => load.pagesCached],
  ["bunting_pages_owned", "KV pages that sequences hold.", pagesOwned],
  ["bunting_states_free", "State slots that hold nothing.", (load) => load.statesFree],
  ["bunting_states_kept", "State slots that checkpoints hold.", (load) => load.checkpoints],
  ["bunting_states_owned", "State slots that sequences hold.", statesOwned],
  ["bunting_prompt_tokens_pending", "Prompt tokens still to compute.", (load) => load.tokensPending],
];

export const engineTotals: readonly EngineRow[] = [
  ["vllm:prompt_tokens_total", "Prompt tokens computed or cached.", (load) => load.promptTokensTotal],
  ["vllm:generation_tokens_total", "Tokens generated.", (load) => load.generatedTokensTotal],
  ["vllm:prefix_cache_queries_total", "Prompt tokens looked up.", (load) => load.prefixQueriedTotal],
  ["vllm:prompt_tokens_cached_total", "Prompt tokens that were cached.", (load) => load.prefixHitTotal],
  ["vllm:prefix_cache_hits_total", "Prompt tokens found in the cache.", (load) => load.prefixHitTotal],
  ["vllm:num_preemptions_total", "Sequences that lost their pages.", (load) => load.preemptionsTotal],
  ["vllm:spec_decode_num_drafts_total", "Drafts checked.", (load) => load.draftsTotal],
  ["vllm:spec_decode_num_draft_tokens_total", "Tokens of drafts checked.", (load) => load.draftTokensTotal],
  [
    "vllm:spec_decode_num_accepted_tokens_total",
    "Tokens of drafts that were right.",
    (load) => load.acceptedTokensTotal,
  ],
  ["bunting_steps_total", "Steps computed.", (load) => load.stepsTotal],
  ["bunting_steps_over_target_total", "Steps that made a stream late.", (load) => load.stepsOverTarget],
  ["bunting_skipped_decodes_total", "Decodes left out of a step.", (load) => load.skippedDecodesTotal],
  ["bunting_evicted_pages_total", "Cached pages given up for others.", (load) => load.evictedPagesTotal],
  ["bunting_tier_stored_pages_total", "Pages stored on the tier.", (load) => load.tierStoredPagesTotal],
  ["bunting_tier_found_pages_total", "Pages that lookups found there.", (load) => load.tierFoundPagesTotal],
  ["bunting_tier_loaded_pages_total", "Pages loaded from it.", (load) => load.tierLoadedPagesTotal],
  [
    "bunting_tier_host_pages_total",
    "Pages loaded that came from the host's memory.",
    (load) => load.tierHostPagesTotal,
  ],
  ["bunting_tier_short_loads_total", "Loads with lost pages.", (load) => load.tierShortLoadsTotal],
];

/** Metrics of an engine with one more label. */
export const engineParts: readonly PartRow[] = [
  [
    "vllm:num_requests_waiting_by_reason",
    "Waiting sequences: for memory or a place (capacity), or for a prefix that another one computes (deferred).",
    "reason",
    ({ waiting, deferred }) => ({ capacity: waiting - deferred, deferred }),
  ],
  [
    "vllm:prompt_tokens_by_source_total",
    "Prompt tokens by where they came from; none is transferred from elsewhere.",
    "source",
    ({ promptTokensTotal, prefixHitTotal: local_cache_hit }) => {
      const local_compute = promptTokensTotal - local_cache_hit;
      return { local_compute, local_cache_hit, external_kv_transfer: 0 };
    },
  ],
  [
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "Tokens of drafts that were right, by their place in the draft, from 0.",
    "position",
    ({ acceptedByPlace }) => Object.fromEntries(acceptedByPlace.entries()),
  ],
];

export type KeyRow = readonly [
  name: string,
  help: string,
  label: string | null,
  read: (sums: UseSums) => Readonly<Record<string, number>>,
];

/** Totals by API key. `label`: name of the further label of a row; null: it has none. */
export const keyTotals: readonly KeyRow[] = [
  [
    "bunting_key_requests_total",
    "Requests of a key that have ended, by outcome.",
    "outcome",
    ({ answered, failed, cancelled }) => ({ answered, failed, cancelled }),
  ],
  [
    "bunting_key_tokens_total",
    "Tokens of a key's requests: prompt_computed, prompt_cached, generated.",
    "part",
    ({ promptTokens, cachedTokens, completionTokens: generated }) => {
      return { prompt_computed: promptTokens - cachedTokens, prompt_cached: cachedTokens, generated };
    },
  ],
  [
    "bunting_key_device_seconds_total",
    "Time that the steps of a key's requests would have taken without others in them.",
    null,
    ({ deviceMs }) => ({ all: deviceMs / 1000 }),
  ],
];

function pagesOwned(load: EngineLoad): number {
  return load.pagesTotal - load.pagesFree - load.pagesCached;
}

function statesOwned({ statesTotal, statesFree, checkpoints }: EngineLoad): number {
  return statesTotal - statesFree - checkpoints;
}

function usedShare(load: EngineLoad): number {
  return load.pagesTotal === 0 ? 0 : pagesOwned(load) / load.pagesTotal;
}
