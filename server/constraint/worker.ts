/** Entry of the thread that compiles constraints, one after another. */
import { type ConstraintSource, compileConstraint } from "../../scheduler/constraint/compile.ts";
import { ConstraintError } from "../../scheduler/constraint/error.ts";
import type { CompilerAnswer } from "./compiler.ts";

declare const self: Worker;

self.onmessage = ({ data }: MessageEvent<ConstraintSource>) => {
  let answer: CompilerAnswer;
  try {
    answer = { kind: "compiled", compiled: compileConstraint(data) };
  } catch (error) {
    if (!(error instanceof ConstraintError || error instanceof RangeError)) throw error;
    const pointer = error instanceof ConstraintError ? error.pointer : "";
    answer = { kind: "refused", message: error.message, pointer };
  }
  self.postMessage(answer);
};
