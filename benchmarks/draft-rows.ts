/**
 * Price of rows that check drafts on the CPU engine: processor milliseconds of a step with 1, 2, 4, 8 and 16 tokens
 * of one stream, each with a draw, and of as many streams; medians. Other programs disturb these less
 * than times do.
 *
 *   npx bun benchmarks/draft-rows.ts <folder or GGUF file> [--isa avx2] [--format int8] [--threads 1]
 *     [--contexts 256,4096] [--library build/native/libbunting_cpu.so]
 */
import { parseArgs } from "node:util";
import { isaNames, openLibrary } from "../gpu/native.ts";
import { EngineBench, type Format } from "./cpu/engine.ts";
import { median } from "./cpu/rounds.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    isa: { type: "string", default: "auto" },
    format: { type: "string", default: "q4_k_m" },
    threads: { type: "string", default: "1" },
    contexts: { type: "string", default: "256,4096" },
    library: { type: "string", default: "build/native/libbunting_cpu.so" },
  },
});
const isa = ([...isaNames, "auto"] as const).find((name) => name === values.isa);
if (isa === undefined) throw new Error(`--isa ${values.isa}: wanted ${isaNames.join(", ")} or auto`);
const COUNTS = [1, 2, 4, 8, 16];
const STEPS = 31;
/** Longest context that each stream computes for itself. */
const STREAMS_CONTEXT_MAX = 512;

const engine = new EngineBench(
  openLibrary(values.library),
  positionals[0]!,
  values.format as Format,
  Number(values.threads),
  isa,
);
console.log(`${values.isa}: processor ms of a step with ${COUNTS.join(", ")} rows`);
for (const context of values.contexts.split(",").map(Number)) {
  for (const streams of context > STREAMS_CONTEXT_MAX ? [false] : [false, true]) {
    const times = engine.rowsMs(COUNTS, context, streams, STEPS).map(median);
    const shares = times.map((ms) => (ms / times[0]!).toFixed(2));
    console.log(
      `context ${context}, ${streams ? "as many streams" : "one stream"}: ${times.map((ms) => ms.toFixed(1)).join(", ")}; of one row ${shares.join(", ")}`,
    );
  }
}
engine.close();
