/** Entry of the thread that compiles constraints, one after another. */
import { COMPILE_STEPS, compileConstraint } from "../../grammar/compile.ts";
import { Budget, ConstraintError } from "../../grammar/error.ts";
import type { CompilerAnswer, CompilerTask } from "./compiler.ts";
import { Pace, PacedBudget } from "./pace.ts";

declare const self: Worker;

const pace = new Pace();

self.onmessage = ({ data: { source, isPaced } }: MessageEvent<CompilerTask>) => {
  if (isPaced) pace.keep();
  const budget = isPaced ? new PacedBudget(COMPILE_STEPS, pace) : new Budget(COMPILE_STEPS);
  let answer: CompilerAnswer;
  try {
    answer = { kind: "compiled", compiled: compileConstraint(source, budget) };
  } catch (error) {
    if (!(error instanceof ConstraintError || error instanceof RangeError)) throw error;
    const pointer = error instanceof ConstraintError ? error.pointer : "";
    answer = { kind: "refused", message: error.message, pointer };
  }
  if (!isPaced) pace.skip();
  self.postMessage(answer);
};
