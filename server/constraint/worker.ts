/** Entry of the thread that compiles constraints, one after another. */
import {
  COMPILE_STEPS,
  type ConstraintSource,
  compileConstraint,
} from "../../scheduler/constraint/compile.ts";
import { ConstraintError } from "../../scheduler/constraint/error.ts";
import type { CompilerAnswer } from "./compiler.ts";
import { Pace, PacedBudget } from "./pace.ts";

declare const self: Worker;

const pace = new Pace();

self.onmessage = ({ data }: MessageEvent<ConstraintSource>) => {
  pace.keep();
  let answer: CompilerAnswer;
  try {
    answer = { kind: "compiled", compiled: compileConstraint(data, new PacedBudget(COMPILE_STEPS, pace)) };
  } catch (error) {
    if (!(error instanceof ConstraintError || error instanceof RangeError)) throw error;
    const pointer = error instanceof ConstraintError ? error.pointer : "";
    answer = { kind: "refused", message: error.message, pointer };
  }
  self.postMessage(answer);
};
