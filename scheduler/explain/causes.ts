/** Part of a request's way to its last byte. */
export type Phase = "arriving" | "waiting" | "prompt" | "answer" | "machine" | "reader";

/** Cause of time that a request took. */
export interface Cause {
  readonly name: string;
  readonly phase: Phase;
  /** The cause in words, after "waited for" or "spent on". */
  readonly words: string;
}

/**
 * Every cause of time, in the order in which a waterfall shows them. Each instant of a request has exactly one
 * cause, or is divided among several.
 */
export const causes = [
  { name: "reading", phase: "arriving", words: "receiving and parsing the request" },
  { name: "loading_model", phase: "arriving", words: "the model to be loaded" },
  { name: "tokenizing", phase: "arriving", words: "rendering the chat template and making tokens" },
  { name: "compiling", phase: "arriving", words: "preparing its schema or grammar, and its choices" },
  { name: "handing_over", phase: "waiting", words: "messages between threads" },
  { name: "step_in_flight", phase: "waiting", words: "the step that was running to end" },
  { name: "memory", phase: "waiting", words: "KV pages to become free" },
  { name: "slots", phase: "waiting", words: "others to end: as many sequences ran as may" },
  { name: "other_prompts", phase: "waiting", words: "prompts before it, which filled the steps" },
  { name: "other_lane", phase: "waiting", words: "requests of another service class" },
  { name: "other_tenants", phase: "waiting", words: "keys that had used less" },
  { name: "same_prefix", phase: "waiting", words: "another request that computed the same prefix" },
  { name: "disk", phase: "waiting", words: "KV pages to be loaded from disk or the host's memory" },
  { name: "preempted", phase: "waiting", words: "memory to come back after a preemption" },
  { name: "engine_lost", phase: "waiting", words: "another engine after one was lost" },
  { name: "prompt", phase: "prompt", words: "its own prompt" },
  { name: "prompt_others", phase: "prompt", words: "other prompts in the same steps" },
  { name: "prompt_decodes", phase: "prompt", words: "answers of others in the same steps" },
  { name: "recompute", phase: "prompt", words: "computing tokens again" },
  { name: "decode", phase: "answer", words: "its own tokens, as if it were alone" },
  { name: "decode_others", phase: "answer", words: "answers of others in the same steps" },
  { name: "decode_prompts", phase: "answer", words: "prompts of others in the same steps" },
  { name: "drafts_lost", phase: "answer", words: "drafted tokens that were wrong" },
  { name: "grammar", phase: "answer", words: "masks of its grammar that were not ready" },
  { name: "left_out", phase: "answer", words: "steps that left it out" },
  { name: "slower", phase: "machine", words: "steps that took longer than the cost model expects" },
  { name: "given_up", phase: "machine", words: "steps that were given up or repeated" },
  { name: "paused", phase: "reader", words: "the client to read" },
  { name: "writing", phase: "reader", words: "writing the end of the answer" },
] as const satisfies readonly Cause[];

/** Name of a cause. */
export type CauseName = (typeof causes)[number]["name"];

/** Number of causes. */
export const CAUSES = causes.length;

/** Index of each cause in vectors of milliseconds. */
export const causeIndex = Object.fromEntries(causes.map(({ name }, index) => [name, index])) as Readonly<
  Record<CauseName, number>
>;

/** Sums a vector of milliseconds. */
export function totalMs(ms: Float64Array): number {
  let sum = 0;
  for (let cause = 0; cause < ms.length; cause++) sum += ms[cause]!;
  return sum;
}

const OWN = (["prompt", "recompute", "decode", "drafts_lost"] as const).map((name) => causeIndex[name]);

/** Milliseconds of steps that a sequence would take alone. */
export function ownMs(ms: Float64Array): number {
  let sum = 0;
  for (const cause of OWN) sum += ms[cause]!;
  return sum;
}

/** Adds the vector `more` to `ms`. */
export function addMs(ms: Float64Array, more: Float64Array): void {
  for (let cause = 0; cause < ms.length; cause++) ms[cause]! += more[cause]!;
}

/**
 * Makes a vector sum to `wantedMs` ≥ 0. The rest, where there is one, goes to the cause `rest`. An excess is taken from
 * the causes of the latest phases first.
 */
export function fitMs(ms: Float64Array, wantedMs: number, rest: number): void {
  let excess = totalMs(ms) - wantedMs;
  if (excess <= 0) {
    ms[rest]! -= excess;
    return;
  }
  for (let cause = ms.length - 1; cause >= 0 && excess > 0; cause--) {
    const taken = Math.min(ms[cause]!, excess);
    ms[cause]! -= taken;
    excess -= taken;
  }
}
