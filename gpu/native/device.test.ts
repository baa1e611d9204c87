/** Handling of library statuses, with a scripted library: the real one never returns most of them. */
import { expect, test } from "bun:test";
import { InvariantError } from "../../base/assert.ts";
import type { Step, StepResult } from "../../scheduler/core.ts";
import { type EngineHandle, NativeError, type NativeLibrary, type NativeStatus } from "../native.ts";
import { NativeDevice } from "./device.ts";

const limits = {
  threads: 1,
  pages: 4,
  pageTokens: 16,
  stepTokensMax: 16,
  stepChunksMax: 4,
  topLogprobsMax: 0,
};
const spec = { name: "told", contextMax: 64, vocabSize: 100, ...limits };
const empty: Step = { number: 1, moves: [], chunks: [] };

/** A device whose next calls end with these statuses; null is success. */
function deviceOf(started: NativeStatus | null, waited: NativeStatus | null): NativeDevice {
  const answer = (status: NativeStatus | null): void => {
    if (status !== null) throw new NativeError(status, `the library says ${status}`);
  };
  const library: Partial<NativeLibrary> = {
    stepStart: () => answer(started),
    stepWait: () => answer(waited),
    engineClose: () => undefined,
  };
  return new NativeDevice(library as NativeLibrary, 1 as EngineHandle, spec, limits);
}

function outcomeOf(device: NativeDevice): StepResult {
  const results: StepResult[] = [];
  device.start(empty, (result) => results.push(result));
  expect(device.inFlight).toBe(true);
  device.wait();
  expect(results).toHaveLength(0);
  device.deliver();
  expect(device.inFlight).toBe(false);
  expect(results).toHaveLength(1);
  return results[0]!;
}

test.each<[NativeStatus | null, NativeStatus | null, StepResult]>([
  [null, null, { kind: "done", sampled: [], deviceMs: 0 }],
  ["retry", null, { kind: "retry", reason: "the library says retry" }],
  [null, "retry", { kind: "retry", reason: "the library says retry" }],
  ["lost", null, { kind: "lost", reason: "the library says lost" }],
  [null, "lost", { kind: "lost", reason: "the library says lost" }],
  [null, "gaveWay", { kind: "aborted", reason: "the library says gaveWay" }],
  [null, "noMemory", { kind: "lost", reason: "the library says noMemory" }],
])("start answers %p, wait answers %p", (started, waited, expected) => {
  expect(outcomeOf(deviceOf(started, waited))).toEqual(expected);
});

test("a step that the library refuses throws an InvariantError, and is not in flight", () => {
  const device = deviceOf("invalid", null);
  const start = (): void => device.start(empty, () => undefined);
  expect(start).toThrow(InvariantError);
  expect(start).toThrow("the engine refused a step: the library says invalid");
  expect(device.inFlight).toBe(false);
});

test("only an abortable step gets the address of its abort flag", () => {
  const ways: unknown[] = [];
  const library: Partial<NativeLibrary> = {
    stepStart: () => undefined,
    stepWait: (_, way) => void ways.push(way),
  };
  const device = new NativeDevice(library as NativeLibrary, 1 as EngineHandle, spec, limits);
  const way = new Int32Array(new SharedArrayBuffer(4));
  for (const step of [empty, { ...empty, isAbortable: false }, { ...empty, isAbortable: true }]) {
    device.start(step, () => undefined);
    device.wait(way);
    device.deliver();
  }
  expect(ways).toEqual([null, null, way]);
});
