/** The thread that compiles constraints, but for one that it never answers: a choice of "never". */
import type { ConstraintSource } from "../../scheduler/constraint/compile.ts";
import "../../server/constraint/worker.ts";

declare const self: Worker;

const compile = self.onmessage!;
self.onmessage = (event: MessageEvent<ConstraintSource>) => {
  const { data } = event;
  if (data.kind !== "choice" || data.texts[0] !== "never") compile.call(self, event);
};
