/** Entry of an engine's thread: opens its device, hosts one Engine, and loops until it is told to stop. */
import { receiveMessageOnPort } from "node:worker_threads";
import { OnlineCostModel } from "../../scheduler/cost/online.ts";
import type { Device } from "../../scheduler/device.ts";
import { Engine } from "../../scheduler/engine/engine.ts";
import type { EngineReport } from "../../scheduler/messages.ts";
import { EngineRecorder } from "../recording/recorder.ts";
import { type Inbox, runEngineLoop } from "./loop.ts";
import { LoopClock } from "./loop-clock.ts";
import { openDevice } from "./open-device.ts";
import type { EngineStart, InboxMessage, WorkerMessage } from "./protocol.ts";

declare const self: Worker;

const COSTS_EVERY_MS = 1000;

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
  const { setup, epoch, model } = start;
  const clock = new LoopClock();
  const opened = openDevice(setup.device, start.engine, model, clock, (progress) =>
    tell({ kind: "progress", progress }),
  );
  const { device } = opened;
  const costs = new OnlineCostModel(opened.costs);
  const recorder = setup.isRecorded
    ? new EngineRecorder(start.engine, clock, (entries) => tell({ kind: "flight", entries }))
    : null;
  try {
    let toldMs = clock.nowMs();
    const emit = (report: EngineReport): void => {
      recorder?.flush();
      tell({ kind: "report", report });
      if (clock.nowMs() - toldMs < COSTS_EVERY_MS) return;
      toldMs = clock.nowMs();
      tell({ kind: "costs", costs: costs.state() });
    };
    const engine = new Engine(
      mortal(device, start, recorder),
      clock,
      { ...setup.options, epoch },
      emit,
      costs,
    );
    tell({ kind: "ready", spec: device.spec, model: opened.model, costs: costs.state() });
    runEngineLoop(recorder?.watch(engine) ?? engine, device, clock, inboxOf(start));
  } finally {
    recorder?.flush();
    device.close(); // a replacement needs its memory
  }
  // Not after a failure: other engines may be computing on this thread's model, and a replacement will.
  opened.closeModel();
}

/** The device as its engine sees it. A lost one ends the thread before the engine hears of it: what ran here goes on
 *  elsewhere instead of failing. */
function mortal(
  device: Device,
  { setup, engine, epoch }: EngineStart,
  recorder: EngineRecorder | null,
): Device {
  const { rehearsedLoss } = setup;
  const isDoomed = epoch === 0 && rehearsedLoss?.engine === engine;
  return {
    spec: device.spec,
    start: (step, done) => {
      if (isDoomed && step.number === rehearsedLoss.step) throw new Error("a loss was rehearsed");
      device.start(step, (result) => {
        if (result.kind === "lost") throw new Error(result.reason);
        recorder?.answered(step, result);
        done(result);
      });
    },
    close: () => device.close(),
  };
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
