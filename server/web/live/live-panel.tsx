import type { VNode } from "preact";
import { explain } from "../../../scheduler/fleet/placement.ts";
import { type LiveView, laneNames, share, shortNumber } from "../../http/live-view.ts";
import type { Quantiles } from "../../http/recent-quantiles.ts";
import { NeedsOperator } from "../needs-operator.tsx";
import { Panel } from "../panel.tsx";
import { placementLine } from "../placement-line.ts";
import { live } from "../store.ts";
import { Engines } from "./engines.tsx";
import { Plot } from "./plot.tsx";

/** Engines at work: rates, latencies of clients, steps, queue and memory. */
export function LivePanel(): VNode {
  const { value: view } = live.view;
  return (
    <Panel name="live">
      <NeedsOperator />
      {view !== null && <Now view={view} />}
    </Panel>
  );
}

function Now({ view }: { readonly view: LiveView }): VNode {
  const { points, timeMs, engines } = view;
  const times = points.map((point) => (point.timeMs - timeMs) / 1000);
  return (
    <>
      <Tiles view={view} />
      <div class="plots">
        <Plot
          title="Tokens a second"
          times={times}
          lines={[
            { label: "generated", colour: "decode", values: points.map((point) => point.tokensPerSecond) },
            { label: "prompts", colour: "prompt", values: points.map((point) => point.promptPerSecond) },
          ]}
        />
        <Plot
          title="Waits of clients, 99 of 100, in ms"
          times={times}
          lines={[
            { label: "first token", colour: "draft", values: points.map((point) => point.firstTokenMs) },
            {
              label: "between tokens",
              colour: "decode",
              values: points.map((point) => point.betweenTokensMs),
            },
          ]}
        />
      </div>
      <Engines view={view} />
      <div class="plots">
        <Queue view={view} />
        {engines.length > 1 && <Placements view={view} />}
      </div>
    </>
  );
}

function Tiles({ view }: { readonly view: LiveView }): VNode {
  const { engines, points, firstToken, betweenTokens, targetMs, jobs, computed } = view;
  const sum = (read: (load: LiveView["engines"][number]["load"]) => number) =>
    engines.reduce((total, { load }) => total + read(load), 0);
  const drafted = sum((load) => load.draftTokensTotal);
  const tierLoaded = sum((load) => load.tierLoadedPagesTotal);
  const fromHost = sum((load) => load.tierHostPagesTotal);
  const tierStored = sum((load) => load.tierStoredPagesTotal);
  return (
    <dl class="tiles">
      <Tile name="Tokens/s" value={shortNumber(points.at(-1)?.tokensPerSecond ?? 0)} />
      <Tile name="Running" field="running-all" value={String(sum((load) => load.running))} />
      <Tile name="Waiting" field="waiting-all" value={String(sum((load) => load.waiting))} />
      <Tile name="First token" value={waits(firstToken)} note="ms, half and 99 of 100" />
      <Tile
        name="Between tokens"
        value={waits(betweenTokens)}
        note={targetMs === null ? "ms, half and 99 of 100" : `ms; target ${targetMs}`}
      />
      <Tile
        name="Prompts found"
        value={share(
          sum((load) => load.prefixHitTotal),
          sum((load) => load.prefixQueriedTotal),
        )}
        note="in the prefix cache"
      />
      <Tile
        name="Memory in use"
        value={share(
          sum((load) => load.pagesTotal - load.pagesFree - load.pagesCached),
          sum((load) => load.pagesTotal),
        )}
        note={`${share(
          sum((load) => load.pagesCached),
          sum((load) => load.pagesTotal),
        )} cached`}
      />
      {tierStored > 0 && (
        <Tile
          name="Kept below"
          value={shortNumber(tierStored)}
          note={
            fromHost === 0
              ? `pages stored, ${shortNumber(tierLoaded)} loaded`
              : `pages stored, ${shortNumber(fromHost)} loaded from host memory, ${shortNumber(tierLoaded - fromHost)} from disk`
          }
        />
      )}
      {drafted > 0 && (
        <Tile
          name="Drafts right"
          value={share(
            sum((load) => load.acceptedTokensTotal),
            drafted,
          )}
          note="of their tokens"
        />
      )}
      {jobs !== null && jobs.active > 0 && (
        <Tile name="Jobs" field="jobs" value={String(jobs.active)} note={sharesOf(computed)} />
      )}
    </dl>
  );
}

function Tile(given: {
  readonly name: string;
  readonly value: string;
  readonly note?: string;
  readonly field?: string;
}): VNode {
  const { name, value, note, field } = given;
  return (
    <div class="tile card">
      <dt>{name}</dt>
      <dd data-field={field}>{value}</dd>
      {note !== undefined && <dd class="hint">{note}</dd>}
    </div>
  );
}

function Queue({ view: { queue } }: { readonly view: LiveView }): VNode {
  return (
    <section class="card" aria-labelledby="queue-title">
      <h2 id="queue-title">Queue</h2>
      {queue.length === 0 ? (
        <p class="hint">Nobody waits.</p>
      ) : (
        <table>
          <thead>
            <tr>
              <th>Lane</th>
              <th>Key</th>
              <th class="right">Waiting</th>
              <th class="right">Prompt tokens</th>
            </tr>
          </thead>
          <tbody>
            {queue.map(({ objective, tenant, waiting, promptTokens }) => (
              <tr key={`${objective} ${tenant}`}>
                <td>{laneNames[objective]}</td>
                <td>{tenant === "" ? "none" : tenant.slice(0, 8)}</td>
                <td class="right">{waiting}</td>
                <td class="right">{shortNumber(promptTokens)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function Placements({ view: { placements } }: { readonly view: LiveView }): VNode {
  return (
    <section class="card" aria-labelledby="placements-title">
      <h2 id="placements-title">Last placements</h2>
      <ol class="placements">
        {placements.map(({ sequence, placement }) => (
          <li key={sequence} title={explain(sequence, placement)}>
            Engine {placement.engine}: {placementLine(placement)}
          </li>
        ))}
      </ol>
    </section>
  );
}

function waits(quantiles: Quantiles | null): string {
  return quantiles === null ? "–" : `${shortNumber(quantiles.p50Ms)} · ${shortNumber(quantiles.p99Ms)}`;
}

/** Shares of batch jobs and of requests in all computed tokens. */
function sharesOf({ jobs, requests }: LiveView["computed"]): string {
  const all = jobs + requests;
  if (all === 0) return "no tokens yet";
  const percent = Math.round((100 * jobs) / all);
  return `${percent} % of all tokens, requests ${100 - percent} %`;
}
