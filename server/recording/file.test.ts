import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EngineId, SequenceId } from "../../scheduler/core.ts";
import {
  RECORDING_VERSION,
  type RecordingEntry,
  type RecordingHead,
} from "../../scheduler/recording/recording.ts";
import { deviceSpec, sequenceSpec } from "../../simulation/factories.ts";
import { RecordingWriter, readRecording } from "./file.ts";

const folder = mkdtempSync(join(tmpdir(), "bunting-recording-"));
afterAll(() => rmSync(folder, { recursive: true }));

const head = { kind: "head", version: RECORDING_VERSION, specs: [deviceSpec()] } as unknown as RecordingHead;
const sequence = { ...sequenceSpec([1, 70_000, 3], 5), id: 7 as SequenceId };
const entries: readonly RecordingEntry[] = [
  { kind: "call", atMs: 0.1 + 0.2, sequence, first: sequence.id, engine: 1 as EngineId, reason: "exploit" },
  { kind: "message", atMs: 4, engine: 1 as EngineId, message: { kind: "submit", sequence } },
  { kind: "run", atMs: 4, engine: 1 as EngineId },
  {
    kind: "step",
    atMs: 1e9 + 1 / 3,
    engine: 1 as EngineId,
    result: "done",
    deviceMs: 5.25,
    sampled: [
      { kind: "token", sequence: 7 as SequenceId, token: 9, logprobs: { logprob: -0.5, top: [] } },
      { kind: "failed", sequence: 8 as SequenceId, reason: "its logits are not finite" },
    ],
    plan: 2 ** 32 - 1,
  },
  { kind: "abort", atMs: 8, sequence: 7 as SequenceId },
];

function recorded(name: string, first = head): string {
  const path = join(folder, name);
  const writer = new RecordingWriter(path);
  writer.write(first);
  for (const entry of entries) writer.write(entry);
  writer.close();
  writer.write(entries[0]!); // ignored after its end
  return path;
}

test("a recording comes back as it was written, and only its owner may read it", () => {
  const path = recorded("whole");
  expect(readRecording(path)).toEqual({ head, entries, isCut: false });
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

test("a recording whose process was killed is read as far as it goes", () => {
  const path = recorded("cut");
  writeFileSync(path, readFileSync(path).subarray(0, -3));
  expect(readRecording(path)).toEqual({ head, entries: entries.slice(0, -1), isCut: true });
});

test("a recording of other rules is not run again: both versions are told", () => {
  const old = { ...head, version: RECORDING_VERSION - 1 } as unknown as RecordingHead;
  expect(() => readRecording(recorded("old", old))).toThrow(
    `whose rules are version ${RECORDING_VERSION - 1}; this Bunting decides by version ${RECORDING_VERSION}`,
  );
});

test("what is no recording is told so", () => {
  const path = join(folder, "other");
  for (const text of ["", "not a recording at all", "\x02\x00\x00\x00\x93\x01"]) {
    writeFileSync(path, text);
    expect(() => readRecording(path)).toThrow("is no recording");
  }
  expect(() => readRecording(join(folder, "none"))).toThrow("The recording cannot be read");
  expect(() => new RecordingWriter(join(folder, "no/such/folder"))).toThrow(
    "The recording cannot be written",
  );
});
