/**
 * Results kept in a file. A machine is quiet only for minutes, so rows come a few at a time. Each has the
 * date and commit of its measurement.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import type { Cell } from "../../server/cli/table.ts";
import type { Ceilings } from "./ceilings.ts";
import { pictureOf } from "./picture.ts";
import type { Figure } from "./rows.ts";

export interface Measured extends Figure {
  /** Date in UTC, to the minute. */
  readonly date: string;
  /** Commit of this project. */
  readonly commit: string;
}

export interface Recording {
  readonly machine: string;
  readonly threads: number;
  /** Version of llama.cpp; null: not measured. */
  readonly llamaVersion: string | null;
  /** Ceilings of the latest measurement. */
  readonly ceilings: Ceilings;
  readonly figures: readonly Measured[];
}

export function readRecording(path: string): Recording | null {
  if (!existsSync(path)) return null;
  const kept = JSON.parse(readFileSync(path, "utf8")) as Recording;
  // Early recordings have no spread.
  return { ...kept, figures: kept.figures.map((figure) => ({ ...figure, spread: figure.spread ?? null })) };
}

/** Merges recordings: keeps old figures without a new measurement, and sorts figures by `order`. */
export function merged(old: Recording | null, now: Recording, order: readonly string[]): Recording {
  const byName = new Map([...(old?.figures ?? []), ...now.figures].map((figure) => [figure.what, figure]));
  const rank = ({ what }: Measured): number => {
    const at = order.findIndex((name) => what.startsWith(name));
    return at < 0 ? order.length : at;
  };
  const figures = [...byName.values()].sort((a, b) => rank(a) - rank(b));
  return { ...now, llamaVersion: now.llamaVersion ?? old?.llamaVersion ?? null, figures };
}

/** Writes the recording as JSON, and as a page and a picture beside it. */
export function writeRecording(path: string, recording: Recording, how: string): void {
  writeFileSync(path, `${JSON.stringify(recording, null, 2)}\n`);
  writeFileSync(path.replace(/\.json$/, ".md"), page(recording, how));
  writeFileSync(path.replace(/\.json$/, ".svg"), picture(recording));
}

/** Picture of the figures that have a comparison. */
export function picture({ machine, threads, figures }: Recording): string {
  const bars = figures.flatMap((figure) => {
    const ratio = ratioOf(figure);
    return ratio === null ? [] : [{ what: figure.what, ratio, spread: figure.spread }];
  });
  return pictureOf(`Times as fast as llama.cpp: ${machine}, ${threads} threads`, bars);
}

export const head = [
  "what",
  "ours",
  "",
  "of the ceiling",
  "llama.cpp",
  "with",
  "ratio",
  "spread",
  "aim",
  "met",
];

export function cells(figure: Figure): Cell[] {
  const { what, ours, unit, share, llama, llamaWith, spread, aim } = figure;
  const times = ratioOf(figure);
  const percentOf = (of: number): string => `${(of * 100).toFixed(0)} %`;
  const percent = share === null ? null : percentOf(share);
  const ratio = times === null ? null : `${times.toFixed(2)}×`;
  // llama.cpp has the same ceiling if it reads as many weights.
  const theirShare = share === null || times === null ? "" : ` (${percentOf(share / times)})`;
  const theirs = llama === null ? null : `${rounded(llama)}${theirShare}`;
  const range = spread === null ? null : spread.map((value) => value.toFixed(2)).join("-");
  return [
    ...[what, rounded(ours), unit, percent, theirs, llamaWith, ratio, range],
    ...[aimText(figure), isMet(figure, aim)],
  ];
}

/** Ratio of ours to llama.cpp's; inverted for milliseconds. */
function ratioOf({ ours, unit, llama }: Figure): number | null {
  if (llama === null) return null;
  return unit === "ms" ? llama / ours : ours / llama;
}

function rounded(value: number): string {
  return value < 100 ? value.toFixed(1) : Math.round(value).toLocaleString("en");
}

function aimText({ aim, unit }: Figure): string {
  return [
    aim.ratio === undefined ? "" : unit === "ms" ? `≤ 1/${aim.ratio}` : `≥ ${aim.ratio}×`,
    aim.share === undefined ? "" : `≥ ${aim.share * 100} %`,
    aim.msMost === undefined ? "" : `≤ ${aim.msMost.toLocaleString("en")} ms`,
  ]
    .filter((part) => part !== "")
    .join(", ");
}

/** Verdict on the aim; null without an aim or a comparison. */
function isMet(figure: Figure, { ratio, share, msMost }: Figure["aim"]): string | null {
  const times = ratioOf(figure);
  const isOpen = ratio === undefined ? share === undefined && msMost === undefined : times === null;
  if (isOpen) return null;
  const isReached =
    (ratio === undefined || times! >= ratio) &&
    (share === undefined || figure.share! >= share) &&
    (msMost === undefined || figure.ours <= msMost);
  return isReached ? "yes" : "**no**";
}

/** Formats ceilings: "2 threads read 34 GB/s, …". */
export function ceilingText(threads: number, { readBytes, f32, bf16, int8 }: Ceilings): string {
  const giga = (value: number): string => Math.round(value / 1e9).toLocaleString("en");
  return `${threads} threads read ${giga(readBytes)} GB/s and multiply at ${giga(f32)} GFLOP/s in f32, ${giga(bf16)} in bf16, ${giga(int8)} GOP/s in int8`;
}

function page({ machine, threads, llamaVersion, ceilings, figures }: Recording, how: string): string {
  const line = (words: readonly Cell[]): string => `| ${words.map((word) => word ?? "–").join(" | ")} |`;
  const lines = figures.map((figure) => line([...cells(figure), `${figure.date}, ${figure.commit}`]));
  return `# The CPU engine beside llama.cpp

Written by \`${how}\`. What the columns mean and what limits the rows that fall short: [cpu](../../docs/cpu.md#measured).

${machine}; ${ceilingText(threads, ceilings)}. llama.cpp: ${llamaVersion ?? "not beside"}, with as many threads.

${line([...head, "measured"])}
|---|---:|---|---:|---:|---|---:|---:|---|---|---|
${lines.join("\n")}
`;
}
