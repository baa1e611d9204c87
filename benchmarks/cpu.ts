/**
 * CPU engine compared with this machine's measured ceilings and, if present, with llama.cpp in the same run.
 * Both use the same weight width and thread count, llama.cpp its fastest configuration. Rows are measured in
 * rounds of both; medians count. Weights are random. The machine should be idle. Models and GGUF files are
 * made once and kept in --place.
 *
 *   npx bun benchmarks/cpu.ts [--place folder] [--only "1B bf16" --only server …] [--list]
 *     [--record benchmarks/cpu/results.json] [--threads 2] [--isa avx2]
 *     [--library build/native/libbunting_cpu.so] [--llama-bench path] [--llama-server path] [--json]
 *
 * `--only` selects the rows whose names contain a text, in the order of the texts; `--list` names them.
 * `--record` adds the results to a file, row by row, beside earlier ones, and writes the table to a page of
 * the same name. `--isa` forces a lower instruction set for the rows of the engine. llama-batched-bench and
 * llama-quantize must be beside llama-bench.
 */

import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { isaNames, openLibrary } from "../gpu/native.ts";
import { table } from "../server/cli/table.ts";
import { measureCeilings } from "./cpu/ceilings.ts";
import {
  ceilingText,
  cells,
  head,
  type Measured,
  merged,
  type Recording,
  readRecording,
  writeRecording,
} from "./cpu/record.ts";
import { Bench, rows } from "./cpu/rows.ts";
import { runProgram } from "./cpu/runs.ts";

const root = resolve(import.meta.dir, "..");
const { values } = parseArgs({
  options: {
    place: { type: "string", default: join(tmpdir(), "bunting-cpu-benchmark") },
    only: { type: "string", multiple: true, default: [""] },
    list: { type: "boolean", default: false },
    record: { type: "string" },
    threads: { type: "string", default: String(Math.min(2, navigator.hardwareConcurrency)) },
    isa: { type: "string", default: "auto" },
    library: { type: "string", default: join(root, "build/native/libbunting_cpu.so") },
    "llama-bench": { type: "string" },
    "llama-server": { type: "string" },
    json: { type: "boolean", default: false },
  },
});

const isa = ([...isaNames, "auto"] as const).find((name) => name === values.isa);
if (isa === undefined) throw new Error(`--isa ${values.isa}: wanted ${isaNames.join(", ")} or auto`);
const threads = Number(values.threads);
const chosen = [...new Set(values.only.flatMap((text) => rows.filter(({ name }) => name.includes(text))))];
if (chosen.length === 0) throw new Error(`--only ${values.only}: no row has such a name; --list names them`);
if (values.list) {
  for (const { name } of chosen) console.log(name);
  process.exit(0);
}

async function wordsOf(...command: string[]): Promise<string> {
  return (await runProgram(command)).trim();
}

const commit = await wordsOf("git", "-C", root, "rev-parse", "--short", "HEAD");
const ceilings = measureCeilings(values.library, threads);
const bench = new Bench({
  ...{ place: values.place, threads, isa, library: values.library, ceilings },
  llamaBench: values["llama-bench"] ?? null,
  llamaServer: values["llama-server"] ?? null,
});
const figures: Measured[] = [];
const { processor, cores } = openLibrary(values.library).machineProbe();
const llama = values["llama-server"];
const about = {
  ...{ machine: `${processor}, ${cores} cores`, threads, ceilings },
  llamaVersion: llama === undefined ? null : await llamaVersion(llama),
};
console.error(ceilingText(threads, ceilings));
for (const row of chosen) {
  const date = new Date().toISOString().slice(0, 16).replace("T", " ");
  const measured = (await row.run(bench)).map((figure) => {
    const what = isa === "auto" ? figure.what : `${figure.what} [${isa}]`;
    return { ...figure, what, date, commit };
  });
  figures.push(...measured);
  // Prints rows as they come.
  for (const figure of measured) console.error(cells(figure).join("  "));
  if (values.record !== undefined) keep(values.record, { ...about, figures: measured });
}
bench.close();
if (values.json) console.log(JSON.stringify({ ...about, figures }, null, 2));
else console.log(`${ceilingText(threads, ceilings)}\n\n${table(head, figures.map(cells))}`);
process.exit(0);

function keep(path: string, now: Recording): void {
  const order = rows.map(({ name }) => name);
  const how = "npx bun benchmarks/cpu.ts --record … --llama-bench … --llama-server …";
  writeRecording(path, merged(readRecording(path), now, order), how);
}

/** Returns llama.cpp's version, "version: 1234 (abcdef)", which it prints on the other stream. */
async function llamaVersion(program: string): Promise<string> {
  const child = Bun.spawn([program, "--version"], { stdout: "pipe", stderr: "pipe" });
  const [out, error] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return /version: *(.+)/.exec(out + error)?.[1] ?? "unknown version";
}
