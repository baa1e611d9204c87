import type { VNode } from "preact";
import { Panel } from "../panel.tsx";
import { usePolled } from "./polled.ts";

interface Program {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly calls: Readonly<Record<"waiting" | "running" | "done" | "failed", number>>;
  readonly usage: {
    readonly total_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
  };
}

/** Open programs of this tab's key, with the state of their calls. */
export function ProgramsPanel(): VNode {
  const { answer, problem } = usePolled<{ readonly data: readonly Program[] }>("v1/programs");
  const programs = answer.value?.data ?? [];
  return (
    <Panel name="programs">
      <section class="card" aria-labelledby="programs-title">
        <h2 id="programs-title">Programs</h2>
        {problem.value !== null && <p class="hint">{problem.value}</p>}
        {answer.value !== null && programs.length === 0 && (
          <p class="hint">
            No program is open. A program is a graph of calls that the server runs:{" "}
            <code>POST /v1/programs</code>.
          </p>
        )}
        <ul class="work">
          {programs.map((program) => (
            <Entry key={program.id} program={program} />
          ))}
        </ul>
      </section>
    </Panel>
  );
}

function Entry({ program: { id, created, calls, usage } }: { readonly program: Program }): VNode {
  const { waiting, running, done, failed } = calls;
  const facts = [
    `${done} of ${waiting + running + done + failed} calls done`,
    `${running} running`,
    ...(failed > 0 ? [`${failed} failed`] : []),
    `${usage.total_tokens} tokens, ${usage.prompt_tokens_details.cached_tokens} of them found`,
    `opened ${new Date(created * 1000).toLocaleTimeString()}`,
  ];
  return (
    <li>
      <p>
        <b>{id}</b>
      </p>
      <progress
        aria-label={`Calls of ${id}`}
        max={Math.max(1, waiting + running + done + failed)}
        value={done + failed}
      />
      <p class="facts">{facts.join(" · ")}</p>
    </li>
  );
}
