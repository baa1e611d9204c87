/** Picture of `bunting top`, as lines of text. */
import { causes } from "../../../scheduler/explain/causes.ts";
import type { RunningRequest } from "../../explain/running-requests.ts";
import {
  type EngineView,
  type LiveView,
  laneNames,
  share,
  shortNumber,
  slowMs,
} from "../../http/live-view.ts";
import type { Quantiles } from "../../http/recent-quantiles.ts";
import type { FactsNow } from "../../http/state-events.ts";
import { table } from "../table.ts";
import { lineOf, type Paint, type Piece } from "./paint.ts";
import { memoryBar, stripOf } from "./strip.ts";

/** Server state as received; null: not received yet. */
export interface TopState {
  readonly facts: FactsNow | null;
  readonly view: LiveView | null;
  readonly requests: readonly RunningRequest[];
  /** null while connected. */
  readonly lost: LostConnection | null;
}

/**
 * A lost connection: when it ended and when the next attempt is, in ms since 1970, and why the last attempt
 * failed.
 */
export interface LostConnection {
  readonly sinceMs: number;
  readonly nextMs: number;
  readonly reason: string;
}

export interface Size {
  readonly columns: number;
  /** Maximum lines; infinite for all. */
  readonly rows: number;
}

type Line = readonly Piece[];

/** Maximum queue rows in a frame. */
const QUEUE_ROWS = 4;
/** Rows that engines leave for the queue and the requests. */
const OTHER_ROWS = 7;
const ENGINE_ROWS = 4;
const BAR_COLUMNS = 16;

/** Lines of a picture, at most `rows`, each at most `columns` wide. */
export function frame(state: TopState, { columns, rows }: Size, paint: Paint): readonly string[] {
  const { facts, view, requests, lost } = state;
  const lines: Line[] = [titleOf(facts, view, Number.isFinite(rows))];
  if (lost !== null) lines.push(...lostLines(lost));
  if (facts?.refusal != null) lines.push([["alert", facts.refusal]]);
  if (view === null) lines.push(["Waiting for the server …"]);
  else {
    lines.push(...summaryOf(view), []);
    lines.push(...enginesOf(view, columns, rows - lines.length - OTHER_ROWS), []);
    lines.push(...queueOf(view), [], ...requestsOf(requests));
  }
  return lines.slice(0, rows).map((line) => lineOf(line, columns, paint));
}

function titleOf(facts: FactsNow | null, view: LiveView | null, hasKeys: boolean): Line {
  if (facts === null) return [["strong", "Bunting"]];
  const engines = view?.engines.length ?? 0;
  const more = engines > 1 ? `, ${engines} engines` : "";
  return [
    ["strong", `Bunting ${facts.version}`],
    `  ${facts.model}, ${facts.status}${more}`,
    ["faint", hasKeys ? "   q quits" : ""],
  ];
}

function lostLines({ sinceMs, nextMs, reason }: LostConnection): Line[] {
  return [
    [["alert", `No connection since ${localTime(sinceMs)}; next attempt at ${localTime(nextMs).slice(11)}.`]],
    [["faint", reason]],
  ];
}

/** Formats a time in the terminal's time zone: "2026-07-30 14:05:09". */
function localTime(ms: number): string {
  return new Date(ms).toLocaleString("sv-SE");
}

function summaryOf(view: LiveView): Line[] {
  const { engines, points, firstToken, betweenTokens, targetMs, jobs } = view;
  const sum = (read: (load: EngineView["load"]) => number): number =>
    engines.reduce((total, { load }) => total + read(load), 0);
  const now = points.at(-1);
  const drafted = sum((load) => load.draftTokensTotal);
  const late = view.bars.flat().reduce((total, bar) => total + bar[8], 0);
  return [
    [
      "tokens/s ",
      ["strong", shortNumber(now?.tokensPerSecond ?? 0)],
      ", of prompts ",
      ["strong", shortNumber(now?.promptPerSecond ?? 0)],
      "   running ",
      ["strong", String(sum((load) => load.running))],
      "   waiting ",
      ["strong", String(sum((load) => load.waiting))],
      "   paused ",
      ["strong", String(sum((load) => load.paused))],
    ],
    waitsOf("first token   ", firstToken, null),
    [
      ...waitsOf("between tokens", betweenTokens, targetMs),
      targetMs === null ? "" : `   target ${targetMs} ms, ${late} late`,
    ],
    [
      `prompt tokens cached ${share(
        sum((load) => load.prefixHitTotal),
        sum((load) => load.prefixQueriedTotal),
      )}`,
      drafted === 0
        ? ""
        : `   drafts accepted ${share(
            sum((load) => load.acceptedTokensTotal),
            drafted,
          )}`,
      jobs === null || jobs.active === 0 ? "" : `   jobs ${jobs.active}, lines ${jobs.linesRunning}`,
    ],
  ];
}

/** Quantiles of the last ten seconds; those above the target are highlighted. */
function waitsOf(name: string, quantiles: Quantiles | null, targetMs: number | null): Line {
  if (quantiles === null) return [name, ["faint", "  none in the last ten seconds"]];
  const parts = (["p50Ms", "p90Ms", "p99Ms"] as const).flatMap((which): Line => {
    const ms = quantiles[which];
    const text = shortNumber(ms).padEnd(6);
    const isLate = targetMs !== null && ms > targetMs;
    return [
      ["faint", `  ${which.slice(0, 3)} `],
      [isLate ? "alert" : "strong", text],
    ];
  });
  return [name, ...parts, "ms"];
}

function enginesOf(view: LiveView, columns: number, rows: number): Line[] {
  const { engines, bars, targetMs } = view;
  const topMs = Math.max(slowMs(bars), (targetMs ?? 0) * 1.15);
  const head: Line = [
    ["faint", `steps of the last 30 s, up to ${shortNumber(topMs)} ms;  ! late  p preemption  e eviction`],
  ];
  const isTall = engines.length * ENGINE_ROWS < Math.max(rows, ENGINE_ROWS + 1);
  const all = engines.map((engine, at) =>
    isTall
      ? tallEngine(view, engine, at, { columns, topMs })
      : [lowEngine(view, engine, at, { columns, topMs })],
  );
  const shown = isTall ? all.length : Math.min(all.length, Math.max(1, rows - 2));
  const left = all.length - shown;
  return [
    head,
    ...all.slice(0, shown).flat(),
    ...(left === 0 ? [] : [[["faint", `and ${left} more engines`]] as const]),
  ];
}

interface Room {
  readonly columns: number;
  readonly topMs: number;
}

function tallEngine(view: LiveView, engine: EngineView, at: number, { columns, topMs }: Room): Line[] {
  const { load, name, tokensPerSecond } = engine;
  const { steps, marks } = stripOf(view.bars[at]!, { nowMs: view.timeMs, columns, topMs });
  const owned = load.pagesTotal - load.pagesFree - load.pagesCached;
  const disk =
    load.tierStoredPagesTotal === 0
      ? ""
      : `; ${load.tierHostPagesTotal === 0 ? "disk" : "host"} ${shortNumber(load.tierStoredPagesTotal)}, ${shortNumber(load.tierLoadedPagesTotal)} read`;
  return [
    [
      ["strong", `${at} ${name}`],
      `  ${load.running} running, ${load.waiting} waiting, ${shortNumber(tokensPerSecond)} tokens/s, last step ${shortNumber(load.stepMs)} ms`,
    ],
    steps,
    [["alert", marks]],
    [
      "memory ",
      ...memoryBar(owned, load.pagesCached, load.pagesTotal, BAR_COLUMNS),
      ` ${share(owned, load.pagesTotal)} used, ${share(load.pagesCached, load.pagesTotal)} cached of ${shortNumber(load.pagesTotal)} pages${disk}`,
    ],
  ];
}

function lowEngine(view: LiveView, engine: EngineView, at: number, { columns, topMs }: Room): Line {
  const { load, tokensPerSecond } = engine;
  const facts = `${load.running}+${load.waiting}`;
  const width = Math.max(10, columns - 44);
  const { steps } = stripOf(view.bars[at]!, { nowMs: view.timeMs, columns: width, topMs });
  const owned = load.pagesTotal - load.pagesFree - load.pagesCached;
  return [
    ["strong", String(at).padStart(3)],
    " ",
    ...steps,
    ` ${facts.padStart(8)} ${shortNumber(tokensPerSecond).padStart(5)}/s `,
    ...memoryBar(owned, load.pagesCached, load.pagesTotal, 12),
    ` ${share(owned, load.pagesTotal).padStart(5)}`,
  ];
}

function queueOf({ queue }: LiveView): Line[] {
  if (queue.length === 0) return [["Nobody waits."]];
  const rows = queue
    .slice(0, QUEUE_ROWS)
    .map(({ objective, tenant, waiting, promptTokens }) => [
      laneNames[objective],
      tenant === "" ? "none" : tenant.slice(0, 8),
      waiting,
      shortNumber(promptTokens),
    ]);
  return tableLines(["queue", "key", "waiting", "prompt tokens"], rows);
}

function requestsOf(requests: readonly RunningRequest[]): Line[] {
  if (requests.length === 0) return [["No request runs."]];
  const rows = requests.map(({ id, totalMs, firstMs, generated, cause }) => [
    totalMs.toFixed(0),
    firstMs?.toFixed(0) ?? null,
    generated,
    cause,
    id,
    causes.find(({ name }) => name === cause)!.words,
  ]);
  return tableLines(["ms", "first", "tokens", "now", "request", ""], rows);
}

function tableLines(head: readonly string[], rows: Parameters<typeof table>[1]): Line[] {
  const [first = "", ...rest] = table(head, rows).split("\n");
  return [[["faint", first]], ...rest.map((line): Line => [line])];
}
