/**
 * How much of a step is not native code: the engine and the CPU device on the embedded model, in one thread as in the
 * server, at 1, 8 and 64 sequences. Medians of the wall time per step, of which waiting for the native engine (and
 * reading its result), and the rest: apply, report, plan, write the step block. Links between threads are not in it.
 *
 *   bun benchmarks/step-share.ts [native library] [model folder] [--json]
 */

import { resolve } from "node:path";
import { SeededRandom } from "../base/random.ts";
import { openCpuDevice, openNativeModel } from "../gpu/native/open.ts";
import { openLibrary } from "../gpu/native.ts";
import { openModelFolder } from "../model/folder.ts";
import type { SequenceId } from "../scheduler/core.ts";
import { Engine } from "../scheduler/engine/engine.ts";
import { sequenceSpec } from "../simulation/factories.ts";

const STEPS_WARM = 50;
const STEPS_TIMED = 250;
const PROMPT_TOKENS = 64;

const root = resolve(import.meta.dir, "..");
const [libraryPath, modelDir] = process.argv.slice(2).filter((argument) => !argument.startsWith("--"));
const library = openLibrary(libraryPath ?? resolve(root, "build/native/libbunting_cpu.so"));
const folder = openModelFolder(modelDir ?? resolve(root, "models/demo"));
const threads = Math.max(1, library.machineProbe().cores);
const compute = { compute: "bf16", isa: "auto", threads, contextMax: null } as const;
const model = openNativeModel(library, folder, compute, () => {});

interface Row {
  readonly sequences: number;
  readonly stepUs: number;
  readonly nativeUs: number;
  readonly outsideUs: number;
}

/** Medians over steps in which `sequences` sequences decode. */
function measure(sequences: number): Row {
  const limits = {
    threads,
    pages: 64 * Math.ceil(Math.min(model.contextMax, 1024) / 16),
    pageTokens: 16,
    stepTokensMax: 512,
    stepChunksMax: 128,
    topLogprobsMax: 0,
  };
  const device = openCpuDevice(library, model, limits);
  const clock = { nowMs: () => performance.now(), after: () => () => {} };
  const engine = new Engine(device, clock, {}, () => {});
  const random = new SeededRandom(1);
  const room = Math.min(model.contextMax, 1024) - PROMPT_TOKENS;
  for (let id = 0; id < sequences; id++) {
    const prompt = Int32Array.from({ length: PROMPT_TOKENS }, () => random.below(model.vocabSize));
    const spec = sequenceSpec(prompt, room, { sampling: { temperature: 1, seed: [id, 0] } });
    engine.receive({ kind: "submit", sequence: { ...spec, id: id as SequenceId } });
  }
  engine.run();
  const stepUs: number[] = [];
  const outsideUs: number[] = [];
  for (let step = 0; step < STEPS_WARM + STEPS_TIMED && device.inFlight; step++) {
    const beginNs = Bun.nanoseconds();
    device.wait();
    const computedNs = Bun.nanoseconds();
    device.deliver();
    const tookUs = (Bun.nanoseconds() - beginNs) / 1000;
    if (step < STEPS_WARM) continue;
    stepUs.push(tookUs);
    outsideUs.push(tookUs - (computedNs - beginNs) / 1000);
  }
  device.close();
  const [step, outside] = [median(stepUs), median(outsideUs)];
  return { sequences, stepUs: step, nativeUs: step - outside, outsideUs: outside };
}

function median(values: number[]): number {
  return values.sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
}

const rows = [1, 8, 64].map(measure);
if (process.argv.includes("--json")) console.log(JSON.stringify(rows));
else {
  console.log("sequences   step us  native us  outside us   outside");
  for (const { sequences, stepUs, nativeUs, outsideUs } of rows) {
    const columns = [
      stepUs.toFixed(0).padStart(9),
      nativeUs.toFixed(0).padStart(10),
      outsideUs.toFixed(1).padStart(11),
    ];
    console.log(
      `${String(sequences).padStart(9)} ${columns.join(" ")} ${((100 * outsideUs) / stepUs).toFixed(1).padStart(7)} %`,
    );
  }
}
