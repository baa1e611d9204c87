/**
 * Compiler thread with two special cases: it never answers a choice of "never", and refuses one of "told"
 * with a message that says how the task is paced.
 */
import type { CompilerAnswer, CompilerTask } from "../../server/grammar/compiler.ts";
import "../../server/grammar/worker.ts";

declare const self: Worker;

const compile = self.onmessage!;
self.onmessage = (event: MessageEvent<CompilerTask>) => {
  const { source, isPaced } = event.data;
  const [text] = source.kind === "choice" ? source.texts : [];
  if (text === "told") {
    const message = isPaced ? "at a pace" : "at once";
    self.postMessage({ kind: "refused", message, pointer: "" } satisfies CompilerAnswer);
  } else if (text !== "never") compile.call(self, event);
};
