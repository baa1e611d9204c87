/** Measures a machine just enough to estimate the speed of one planned model. */

import { NativeError, type NativeLibrary } from "../../gpu/native.ts";
import { workOf } from "../../model/work.ts";
import type { ServingPlan } from "../engines/plan.ts";
import { ESTIMATE_TOKENS, estimateSpeed, type SpeedEstimate } from "./estimate.ts";
import { type Ceilings, disturbingLoad, ProcessorMeter } from "./measure.ts";

export interface ModelSpeed extends SpeedEstimate {
  readonly threads: number;
  readonly ceilings: Ceilings;
  /** Load of other programs, in threads, if it lowers the measured rates; else null. */
  readonly otherLoad: number | null;
}

const MS = 150;
const TRIES = 2;
/** Maximum formats to measure, those with the most weights first. */
const FORMATS_MAX = 3;

/**
 * Measures and estimates. Returns null where there is no estimate: on GPUs, in f32, for encoders, and without
 * enough memory.
 */
export function measureSpeed(library: NativeLibrary, plan: ServingPlan): ModelSpeed | null {
  const { folder, compute, backend } = plan;
  if (backend.gpus !== null || compute.compute === "f32" || folder.config.shape.encoder !== undefined) {
    return null;
  }
  const work = workOf(folder, compute.formats ?? []);
  const numbers = new Map<number, number>();
  for (const one of work.matrices) numbers.set(one.format, (numbers.get(one.format) ?? 0) + one.numbers);
  const formats = [...numbers].sort(([, a], [, b]) => b - a).map(([format]) => format);
  const { threads } = compute;
  const otherLoad = disturbingLoad(plan.machine.cores);
  let meter: ProcessorMeter;
  try {
    meter = new ProcessorMeter(library, "auto", threads);
  } catch (error) {
    if (error instanceof NativeError && error.status === "noMemory") return null;
    throw error;
  }
  try {
    const ceilings = meter.ceilings(MS, TRIES);
    const matrices = formats
      .slice(0, FORMATS_MAX)
      .flatMap((format) => [1, ESTIMATE_TOKENS].map((rows) => meter.matrix(ceilings, format, rows, MS)));
    const attention = [ESTIMATE_TOKENS, 1].map((tokens) =>
      meter.attention(ceilings, Math.min(64, tokens), ESTIMATE_TOKENS, MS),
    );
    return { threads, ceilings, otherLoad, ...estimateSpeed(work, { ceilings, matrices, attention }) };
  } finally {
    meter.close();
  }
}
