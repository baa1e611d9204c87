/** Entry of an engine's thread: opens its device, hosts one Engine, and loops until it is told to stop. */
import { receiveMessageOnPort } from "node:worker_threads";
import { Engine } from "../scheduler/engine.ts";
import { openDevice } from "./engine-device.ts";
import { type Inbox, runEngineLoop } from "./engine-loop.ts";
import type { EngineStart, InboxMessage, WorkerMessage } from "./engine-protocol.ts";
import { LoopClock } from "./loop-clock.ts";

declare const self: Worker;

self.onmessage = (event: MessageEvent<EngineStart>) => {
  try {
    run(event.data);
    tell({ kind: "stopped" });
  } catch (error) {
    tell({ kind: "failed", reason: error instanceof Error ? error.message : String(error) });
  }
  process.exit(0); // ends this thread only
};

function run(start: EngineStart): void {
  const clock = new LoopClock();
  const opened = openDevice(start.device, start.model, clock, (progress) =>
    tell({ kind: "progress", progress }),
  );
  const engine = new Engine(opened.device, clock, start.options, (report) =>
    tell({ kind: "report", report }),
  );
  tell({ kind: "ready", spec: opened.device.spec, model: opened.model });
  runEngineLoop(engine, opened.device, clock, inboxOf(start));
  // Not after a failure: other engines may be computing on this thread's model.
  opened.close();
}

function tell(message: WorkerMessage): void {
  self.postMessage(message);
}

function inboxOf(start: EngineStart): Inbox {
  const bell = new Int32Array(start.doorbell);
  return {
    next: () => (receiveMessageOnPort(start.inbox)?.message as InboxMessage | undefined) ?? null,
    bell: () => Atomics.load(bell, 0),
    sleep: (seen, timeoutMs) => {
      Atomics.wait(bell, 0, seen, timeoutMs);
    },
  };
}
