/** Steps of an engine as text: one character for each part of the time axis. */
import { WINDOW_MS } from "../../http/live-view.ts";
import type { StepBar } from "../../http/state-events.ts";
import type { Colour, Piece } from "./paint.ts";

const LEVELS = " ▁▂▃▄▅▆▇█";

interface Column {
  ms: number;
  decodes: number;
  prompts: number;
  drafts: number;
  evicted: number;
  preempted: number;
  late: number;
}

export interface StripOptions {
  readonly nowMs: number;
  readonly columns: number;
  /** Milliseconds of a bar of full height. */
  readonly topMs: number;
}

/**
 * Bars as high as the longest step in their interval, coloured by the kind of most of its tokens, and marks
 * below: `!` a step over its target, `p` a preemption, `e` an eviction.
 */
export function stripOf(
  bars: readonly StepBar[],
  { nowMs, columns, topMs }: StripOptions,
): { readonly steps: readonly Piece[]; readonly marks: string } {
  const cells = Array.from({ length: columns }, (): Column => {
    return { ms: 0, decodes: 0, prompts: 0, drafts: 0, evicted: 0, preempted: 0, late: 0 };
  });
  const columnOf = (ms: number): number => Math.floor(columns * (1 - (nowMs - ms) / WINDOW_MS));
  for (const [endMs, ms, decodes, prompt, warmed, drafts, evicted, preempted, late] of bars) {
    const last = Math.min(columnOf(endMs), columns - 1);
    if (last < 0) continue;
    for (let at = Math.max(0, Math.min(columnOf(endMs - ms), last)); at <= last; at++)
      cells[at]!.ms = Math.max(cells[at]!.ms, ms);
    const cell = cells[last]!;
    cell.decodes += decodes;
    cell.prompts += prompt + warmed;
    cell.drafts += drafts;
    cell.evicted += evicted;
    cell.preempted += preempted;
    cell.late += late;
  }
  return {
    steps: joined(cells.map((cell) => pieceOf(cell, topMs))),
    marks: cells.map(markOf).join("").trimEnd(),
  };
}

/** Joins neighbours of the same colour. */
function joined(cells: readonly (readonly [Colour, string])[]): Piece[] {
  const pieces: [Colour, string][] = [];
  for (const [colour, text] of cells) {
    const last = pieces.at(-1);
    if (last !== undefined && (last[0] === colour || text === " ")) last[1] += text;
    else pieces.push([colour, text]);
  }
  return pieces;
}

function pieceOf({ ms, decodes, prompts, drafts, late }: Column, topMs: number): readonly [Colour, string] {
  const level = ms === 0 ? 0 : Math.max(1, Math.min(8, Math.round((8 * ms) / topMs)));
  const text = LEVELS[level]!;
  if (late > 0) return ["alert", text];
  if (prompts > decodes + drafts) return ["prompt", text];
  return [drafts > decodes ? "draft" : "decode", text];
}

function markOf({ late, preempted, evicted }: Column): string {
  if (preempted > 0) return "p";
  if (late > 0) return "!";
  return evicted > 0 ? "e" : " ";
}

/** Bar of memory: pages of sequences, pages that only the cache holds, and free ones. */
export function memoryBar(owned: number, cached: number, total: number, columns: number): Piece[] {
  const end = (pages: number): number => (total === 0 ? 0 : Math.round((columns * pages) / total));
  const used = end(owned);
  const held = end(owned + cached) - used;
  return [
    ["decode", "█".repeat(used)],
    ["faint", "▒".repeat(held)],
    ["faint", "·".repeat(columns - used - held)],
  ];
}
