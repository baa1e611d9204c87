import type { VNode } from "preact";
import { Panel } from "../panel.tsx";
import { usePolled } from "./polled.ts";

interface Batch {
  readonly id: string;
  readonly endpoint: string;
  readonly status: string;
  readonly created_at: number;
  readonly in_progress_at: number | null;
  readonly completed_at: number | null;
  readonly request_counts: { readonly total: number; readonly completed: number; readonly failed: number };
  readonly usage: {
    readonly total_tokens: number;
    readonly input_tokens_details: { readonly cached_tokens: number };
  };
  readonly paused_by: string | null;
}

/** Batches of this tab's key, with their progress. */
export function JobsPanel(): VNode {
  const { answer, problem } = usePolled<{ readonly data: readonly Batch[] }>("v1/batches?limit=50");
  const batches = answer.value?.data ?? [];
  return (
    <Panel name="jobs">
      <section class="card" aria-labelledby="jobs-title">
        <h2 id="jobs-title">Jobs</h2>
        {problem.value !== null && <p class="hint">{problem.value}</p>}
        {answer.value !== null && batches.length === 0 && (
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

function Job({ batch }: { readonly batch: Batch }): VNode {
  const { id, endpoint, status, request_counts, usage, paused_by, created_at } = batch;
  const { total, completed, failed } = request_counts;
  const facts = [
    endpoint,
    `${completed} of ${total} lines done`,
    ...(failed > 0 ? [`${failed} failed`] : []),
    ...(usage.total_tokens > 0
      ? [`${usage.total_tokens} tokens, ${usage.input_tokens_details.cached_tokens} of them found`]
      : []),
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

/** Rate and time left of a batch that runs. */
function paceOf({ status, in_progress_at, request_counts }: Batch): string[] {
  const done = request_counts.completed + request_counts.failed;
  if (status !== "in_progress" || in_progress_at === null || done === 0) return [];
  const perSecond = done / Math.max(1, Date.now() / 1000 - in_progress_at);
  const left = (request_counts.total - done) / perSecond;
  const time =
    left > 5400
      ? `${(left / 3600).toFixed(1)} h`
      : left > 90
        ? `${Math.round(left / 60)} min`
        : `${Math.round(left)} s`;
  return [`${perSecond.toPrecision(2)} lines/s, about ${time} left`];
}
