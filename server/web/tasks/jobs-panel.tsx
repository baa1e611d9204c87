import type { VNode } from "preact";
import { Panel } from "../panel.tsx";
import { lists } from "../store.ts";
import { type BatchFacts, Paces, timeLeft } from "./batch.ts";

const paces = new Paces();

/** Batches of this tab's key, with their progress. */
export function JobsPanel(): VNode {
  const { entries, problem } = lists.jobs;
  const batches = entries.value ?? [];
  return (
    <Panel name="jobs">
      <section class="card" aria-labelledby="jobs-title">
        <h2 id="jobs-title">Jobs</h2>
        {problem.value !== null && <p class="hint">{problem.value}</p>}
        {entries.value !== null && problem.value === null && batches.length === 0 && (
          <p class="hint">
            No jobs yet. <code>bunting batch in.jsonl -o out.jsonl</code> runs a file of prompts.
          </p>
        )}
        <ul class="work">
          {batches.map((batch) => (
            <Job key={batch.id} batch={batch} />
          ))}
        </ul>
      </section>
    </Panel>
  );
}

function Job({ batch }: { readonly batch: BatchFacts }): VNode {
  const { id, endpoint, status, request_counts, usage, paused_by, created_at } = batch;
  const { total, completed, failed } = request_counts;
  const facts = [
    endpoint,
    `${completed} of ${total} lines done`,
    ...(failed > 0 ? [`${failed} failed`] : []),
    ...(usage.total_tokens > 0 ? [`${usage.total_tokens} tokens`] : []),
    ...savedOf(batch),
    ...paceOf(batch),
    ...(paused_by === null ? [] : [`paused: ${paused_by}`]),
    `begun ${new Date(created_at * 1000).toLocaleString([], { dateStyle: "short", timeStyle: "short" })}`,
  ];
  return (
    <li>
      <p>
        <b>{id}</b> <span class={status}>{status.replaceAll("_", " ")}</span>
      </p>
      <progress aria-label={`Lines of ${id}`} max={Math.max(1, total)} value={completed + failed} />
      <p class="facts">{facts.join(" · ")}</p>
    </li>
  );
}

/** Share of prompt tokens that came from the prefix cache, in words. */
function savedOf({ usage: { input_tokens: prompt, input_tokens_details } }: BatchFacts): string[] {
  const { cached_tokens: found } = input_tokens_details;
  if (found === 0) return [];
  return [`saved ${found} of ${prompt} prompt tokens (${Math.round((100 * found) / prompt)} %)`];
}

/** Rate and remaining time of a running batch. */
function paceOf(batch: BatchFacts): string[] {
  const pace = paces.of(batch, Date.now());
  if (pace === null) return [];
  const { linesPerSecond, tokensPerSecond, secondsLeft } = pace;
  const rate = `${linesPerSecond.toPrecision(2)} lines/s, ${Math.round(tokensPerSecond)} tokens/s`;
  return [`${rate}, about ${timeLeft(secondsLeft)} left`];
}
