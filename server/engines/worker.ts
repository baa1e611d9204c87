/** Entry point of an engine's thread: opens its device, creates an engine and loops until stopped. */
import { receiveMessageOnPort } from "node:worker_threads";
import { ConstrainedDevice } from "../../gpu/constrained-device.ts";
import { OnlineCostModel } from "../../scheduler/cost/online.ts";
import type { Device } from "../../scheduler/device.ts";
import { type EngineEnd, EngineHost } from "../../scheduler/host/engine-host.ts";
import { engineRecorder } from "../../scheduler/recording/recorder.ts";
import type { RecordingEntry } from "../../scheduler/recording/recording.ts";
import { type EngineTier, openTier } from "./engine-tier.ts";
import { runEngineLoop } from "./loop.ts";
import { LoopClock } from "./loop-clock.ts";
import { openDevice } from "./open-device.ts";
import { type PackedMessage, unpacked } from "./packed-message.ts";
import { PauseWork } from "./pause-work.ts";
import {
  type EngineStart,
  type InspectMessage,
  RINGS,
  STOPPED,
  type VocabularyMessage,
  type WorkerMessage,
} from "./protocol.ts";

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
  const tier = openTier(start, {
    onDisk: (counts) => tell({ kind: "disk", counts }),
    onHost: (counts) => tell({ kind: "host", counts }),
  });
  try {
    runEngine(start, tier);
  } finally {
    tier?.close();
  }
}

function runEngine(start: EngineStart, tier: EngineTier | null): void {
  const { setup, engine, epoch, model, inbox, doorbell } = start;
  const clock = new LoopClock();
  const bell = new Int32Array(doorbell);
  const text: { vocabulary: VocabularyMessage } = { vocabulary: null };
  const opened = openDevice(
    setup.device,
    engine,
    { model, costs: start.costs },
    clock,
    (progress) => tell({ kind: "progress", progress }),
    () => {
      text.vocabulary = firstMessage(inbox, bell);
    },
  );
  const { device, memory } = opened;
  const costs = new OnlineCostModel(opened.costs);
  const recorded: RecordingEntry[] = [];
  const link: EngineEnd = {
    next: () => {
      for (;;) {
        const received = receiveMessageOnPort(inbox);
        if (received === undefined) return null;
        const message = received.message as PackedMessage | InspectMessage;
        if (message.kind !== "inspect") return unpacked(message);
        const { engine } = host;
        const { request } = message;
        const { owner } = request;
        if (engine !== null) tell({ kind: "cache", snapshot: engine.snapshotCache(request), owner });
      }
    },
    report: (report, learnt) => {
      tellRecorded(recorded); // recorded inputs come before the report that they led to
      tell({ kind: "report", report, costs: learnt === null ? null : costs.state() });
    },
  };
  const recorder = setup.isRecorded ? engineRecorder(engine, clock, (entry) => recorded.push(entry)) : null;
  const host = new EngineHost(recorder);
  try {
    const { vocabulary } = text;
    const drawing = mortal(device, start);
    const constrained = vocabulary === null ? null : new ConstrainedDevice(drawing, vocabulary);
    if (memory !== null) tier?.attach(memory);
    const ports = {
      link,
      device: constrained ?? drawing,
      clock,
      ...(tier === null ? {} : { tier: tier.tier }),
    };
    host.open(ports, { epoch, settings: setup.options, costs });
    const { model: loaded, times } = opened;
    tell({ kind: "ready", spec: device.spec, model: loaded, costs: costs.state(), times });
    const pauses = new PauseWork(constrained?.warmUp() ?? null);
    runEngineLoop(
      host,
      device,
      clock,
      bell,
      () => tier?.receive(),
      () => {
        tellRecorded(recorded);
        return pauses.run();
      },
    );
  } finally {
    tellRecorded(recorded);
    tier?.close(); // it writes to the device's memory
    device.close(); // a replacement needs its memory
  }
  const learnt = costs.learnt();
  if (learnt !== null) opened.keepCosts(learnt);
  // Skipped after a failure: other engines may use this thread's model, and a replacement will.
  opened.closeModel();
}

/** Waits for the first message. Throws an error if the thread is stopped before. */
function firstMessage(inbox: MessagePort, bell: Int32Array<SharedArrayBuffer>): VocabularyMessage {
  for (;;) {
    const rings = Atomics.load(bell, RINGS);
    const received = receiveMessageOnPort(inbox);
    if (received !== undefined) return received.message as VocabularyMessage;
    if (Atomics.load(bell, STOPPED) === 1) throw new Error("the engine was stopped while it started");
    Atomics.wait(bell, RINGS, rings);
  }
}

/** Wraps the device so that it fails at the step of a rehearsed loss. */
function mortal(device: Device, { setup, engine, epoch }: EngineStart): Device {
  const { rehearsedLoss } = setup;
  if (epoch > 0 || rehearsedLoss?.engine !== engine) return device;
  return {
    spec: device.spec,
    start: (step, done) => {
      if (step.number === rehearsedLoss.step) throw new Error("a loss was rehearsed");
      device.start(step, done);
    },
    close: () => device.close(),
  };
}

function tell(message: WorkerMessage): void {
  self.postMessage(message);
}

function tellRecorded(entries: RecordingEntry[]): void {
  if (entries.length > 0) tell({ kind: "recorded", entries: entries.splice(0) });
}
