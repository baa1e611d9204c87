/** Entry of the thread that compiles constraints, one after another. */
import { COMPILE_STEPS, compileConstraint } from "../../grammar/compile.ts";
import { ConstraintError } from "../../grammar/error.ts";
import type { CompilerAnswer, CompilerTask } from "./compiler.ts";
import { Pace, TimedBudget } from "./pace.ts";

/** Processor time of one constraint at most, which does not depend on other work of the machine. */
const COMPUTE_MS_MAX = 500;

declare const self: Worker;

const pace = new Pace();

self.onmessage = ({ data: { source, isPaced } }: MessageEvent<CompilerTask>) => {
  if (isPaced) pace.keep();
  const budget = new TimedBudget(COMPILE_STEPS, COMPUTE_MS_MAX, isPaced ? pace : null);
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
