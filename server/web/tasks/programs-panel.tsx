import type { VNode } from "preact";
import { Panel } from "../panel.tsx";
import { lists } from "../store.ts";
import { Graph } from "./graph.tsx";
import type { ProgramFacts } from "./program.ts";

/** Open programs of this tab's key, with the state of their calls. */
export function ProgramsPanel(): VNode {
  const { entries, problem } = lists.programs;
  const programs = entries.value ?? [];
  return (
    <Panel name="programs">
      <section class="card" aria-labelledby="programs-title">
        <h2 id="programs-title">Programs</h2>
        {problem.value !== null && <p class="hint">{problem.value}</p>}
        {entries.value !== null && programs.length === 0 && (
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

function Entry({ program }: { readonly program: ProgramFacts }): VNode {
  const { id, created, calls, usage, graph } = program;
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
      <Graph id={id} graph={graph} />
    </li>
  );
}
