/** Progress of a batch, for people. */

import type { BatchObject } from "./jobs-client.ts";

/** Progress text: "120 of 400, 1,204 tokens/s, 56 % of the prompts' tokens saved, 2 min left". */
export function progressText(now: BatchObject, first: BatchObject, seconds: number): string {
  const { total = 0, completed = 0, failed = 0 } = now.request_counts ?? {};
  const done = completed + failed;
  if (now.paused_by != null) return `${done} of ${total}, paused: ${now.paused_by}`;
  if (now.status === "validating") return "reading";
  const before = (first.request_counts?.completed ?? 0) + (first.request_counts?.failed ?? 0);
  const tokens = tokensOf(now) - tokensOf(first);
  const parts = [`${done} of ${total}`];
  if (tokens > 0) parts.push(`${Math.round(tokens / seconds).toLocaleString("en")} tokens/s`);
  const { input_tokens: prompts = 0, input_tokens_details: details } = now.usage ?? {};
  if (prompts > 0)
    parts.push(
      `${Math.round((100 * (details?.cached_tokens ?? 0)) / prompts)} % of the prompts' tokens saved`,
    );
  if (done > before) parts.push(`${duration(((total - done) * seconds) / (done - before))} left`);
  return parts.join(", ");
}

function tokensOf({ usage }: BatchObject): number {
  return usage === undefined ? 0 : usage.input_tokens + usage.output_tokens;
}

function duration(seconds: number): string {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
