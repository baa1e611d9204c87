/**
 * Fits tables of the cost model (scheduler/cost/profile.ts) to published measurements. The tree contains only
 * fitted tables, no row of a source.
 *
 *   bun tools/fit-profile.ts --traces <folder>
 *
 * writes the tables of scheduler/cost/profiles/ again, and
 *
 *   bun tools/fit-profile.ts --folder <folder> --name <device, model> --pages <number> --write <file.json>
 *                            [--layers 32] [--tile 128] [--context-max 32768]
 *                            [--source <text>] [--licence <text>]
 *                            [--kv-times 1] [--head-ms 0] [--head-row-ms 0] [--overhead <cpu_overheads.csv>]
 *                            [--decode <profile.json> --decode-times 1]
 *
 * writes a table of any device. Its folder holds measurements of microsoft/vidur (mlp.csv, attention.csv) or
 * casys-kaist/LLMServingSim (layers.csv, attention.csv, or dense.csv, attention.csv, per_sequence.csv). With
 * several --folder, the first folder that has a file provides it. Further options replace missing
 * measurements:
 * - --kv-times: factor of KV bytes, if attention was measured with fewer
 * - --head-ms, --head-row-ms: times of the output head
 * - --overhead: time of the server's code
 * - --decode: profile that provides decode attention, with times multiplied by --decode-times
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import type { ProfileTable } from "../scheduler/cost/profile.ts";
import { knownTables } from "./fit-profile/known.ts";
import { tableOf } from "./fit-profile/recipe.ts";

const { values } = parseArgs({
  options: {
    traces: { type: "string" },
    folder: { type: "string", multiple: true },
    name: { type: "string" },
    pages: { type: "string" },
    write: { type: "string" },
    layers: { type: "string", default: "32" },
    tile: { type: "string", default: "128" },
    "context-max": { type: "string", default: "32768" },
    source: { type: "string", default: "" },
    licence: { type: "string", default: "" },
    "kv-times": { type: "string", default: "1" },
    "head-ms": { type: "string", default: "0" },
    "head-row-ms": { type: "string", default: "0" },
    overhead: { type: "string" },
    decode: { type: "string" },
    "decode-times": { type: "string", default: "1" },
  },
});

function write(path: string, table: ProfileTable): void {
  writeFileSync(path, `${JSON.stringify(table, null, 2)}\n`);
  const { linear, source: _, ...rest } = table;
  console.log(path, `${linear.tokens.length} points`, JSON.stringify(rest));
}

/** Parses a number greater than 0, or at least 0 with `least` 0. */
function numberOf(option: keyof typeof values, least = Number.MIN_VALUE): number {
  const text = values[option];
  const number = Number(text);
  if (text !== undefined && text !== "" && number >= least && number < Number.POSITIVE_INFINITY)
    return number;
  throw new Error(`--${option} needs a number, and got ${text === undefined ? "none" : `"${text}"`}.`);
}

function textOf(option: "name" | "write"): string {
  const text = values[option];
  if (text === undefined || text === "") throw new Error(`--${option} is needed.`);
  return text;
}

const { traces, folder: folders = [], decode } = values;
if ((traces === undefined) === (folders.length === 0)) {
  throw new Error(
    "Either --traces <folder>, for the tables that there are, or --folder <folder>, for another.",
  );
}
if (traces !== undefined) {
  for (const [file, table] of Object.entries(knownTables(traces))) {
    write(join(import.meta.dir, "../scheduler/cost/profiles", `${file}.json`), table);
  }
} else {
  const table = tableOf({
    name: textOf("name"),
    source: values.source,
    licence: values.licence,
    tileTokens: numberOf("tile"),
    pages: numberOf("pages"),
    contextMax: numberOf("context-max"),
    folders,
    layers: numberOf("layers"),
    overhead: values.overhead ?? null,
    head: { stepMs: numberOf("head-ms", 0), sequenceMs: numberOf("head-row-ms", 0) },
    kvTimes: numberOf("kv-times"),
    decode:
      decode === undefined
        ? null
        : { table: JSON.parse(readFileSync(decode, "utf8")), times: numberOf("decode-times") },
  });
  write(textOf("write"), table);
}
