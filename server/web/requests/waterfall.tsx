import type { VNode } from "preact";
import type { Blocker, RequestFacts } from "../../explain/request-facts.ts";
import { duration, type Part, partsOf } from "./request.ts";

/** Parts of a request's time, one below the other. */
export function Waterfall({ request }: { readonly request: RequestFacts }): VNode {
  const { id, status, error, total_ms, first_token_ms, tokens, engines, preemptions, late, choices } =
    request;
  const facts = [
    status,
    duration(total_ms),
    ...(first_token_ms === null ? [] : [`first token after ${duration(first_token_ms)}`]),
    `${tokens.prompt} prompt tokens, ${tokens.found.memory + tokens.found.host + tokens.found.disk} found`,
    `${tokens.generated} generated`,
    ...(tokens.drafts.checked > 0
      ? [`${tokens.drafts.right} of ${tokens.drafts.checked} drafted right`]
      : []),
    ...(choices > 1 ? [`${choices} choices, of which the last is shown`] : []),
    ...(engines.length > 0 ? [`engine ${engines.join(", ")}`] : []),
    ...(preemptions > 0 ? [`preempted ${preemptions} times`] : []),
    ...(late.tokens > 0 ? [`${late.tokens} tokens late by ${duration(late.ms)}`] : []),
  ];
  return (
    <section id="waterfall" class="card" aria-labelledby="waterfall-title">
      <div class="head">
        <h2 id="waterfall-title">Where the time of {id} went</h2>
        <a href="#requests">Close</a>
      </div>
      <p class="facts">{facts.join(" · ")}</p>
      {error !== null && <p class="error">{error}</p>}
      <ol class="waterfall">
        {partsOf(request).map((part) => (
          <Bar key={part.name} part={part} totalMs={total_ms} />
        ))}
      </ol>
      <Waited words="It waited longest behind the prompt of" other={request.behind} />
      <Waited words="Its prefix was computed by" other={request.same_prefix_of} />
    </section>
  );
}

function Bar({ part, totalMs }: { readonly part: Part; readonly totalMs: number }): VNode {
  const percent = (ms: number) => `${Math.min(100, (100 * ms) / totalMs)}%`;
  return (
    <li class={part.phase}>
      <span class="words">{part.words}</span>
      <span class="track" aria-hidden="true">
        <span style={{ marginLeft: percent(part.fromMs), width: percent(part.ms) }} />
      </span>
      <span class="ms">{duration(part.ms)}</span>
    </li>
  );
}

function Waited({ words, other }: { readonly words: string; readonly other: Blocker | null }): VNode | null {
  if (other === null) return null;
  return (
    <p class="hint">
      {words}{" "}
      {other.request === null ? (
        "a request of another key"
      ) : (
        <a href={`#requests/${encodeURIComponent(other.request)}`}>{other.request}</a>
      )}
      , {duration(other.ms)}.
    </p>
  );
}
