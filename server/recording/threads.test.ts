import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EngineId, Finish } from "../../scheduler/core.ts";
import { ours } from "../../scheduler/policies.ts";
import type { RecordingEntry } from "../../scheduler/recording/recording.ts";
import { deviceSpec, sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { replay } from "../../simulation/recording/replay.ts";
import { recordedWorkload } from "../../simulation/recording/what-if.ts";
import { startEngines } from "../engines/start.ts";
import { type Recording, readRecording } from "./file.ts";

/** Engines on real threads are recorded, and the recording is replayed. */

const scratch = mkdtempSync(join(tmpdir(), "bunting-recorder-"));
afterAll(() => rmSync(scratch, { recursive: true }));

/** Records two engines, of which the second is lost in the middle and comes back. */
async function record(): Promise<Recording> {
  const path = join(scratch, "recording");
  const replaced = Promise.withResolvers<void>();
  const engines = await startEngines(
    {
      workerUrl: new URL("../engines/worker.ts", import.meta.url).href,
      engines: 2,
      device: {
        kind: "simulated",
        spec: deviceSpec({ stepTokensMax: 64, stepChunksMax: 16 }),
        cost: { stepMs: 0.3, tokenMs: 0.01 },
      },
      policy: ours(20),
      options: { queueMax: 64 },
      record: path,
      rehearsedLoss: { engine: 1 as EngineId, step: 12 },
    },
    () => {},
    () => ({ onReplaced: () => replaced.resolve() }),
  );
  const { fleet } = engines;
  const call = (first: number, tokensMax: number, abortAt = Number.POSITIVE_INFINITY): Promise<Finish> =>
    new Promise((onFinish) => {
      let drawn = 0;
      const id = fleet.submit(sequenceSpec(tokensFrom(first, 40 + first), tokensMax), {
        onStarted: () => {},
        onToken: () => {
          drawn += 1;
          if (drawn === abortAt) fleet.abort(id);
        },
        onFinish,
      });
    });
  const taskGroup = (count: number): Promise<readonly Finish[]> => {
    const ends = Array.from({ length: count }, () => Promise.withResolvers<Finish>());
    const spec = sequenceSpec(tokensFrom(7, 90), 12, { service: { taskGroup: 0 } });
    const listeners = ends.map(({ resolve }) => ({
      onStarted: () => {},
      onToken: () => {},
      onFinish: resolve,
    }));
    fleet.submitTaskGroup(new Array(count).fill(spec), listeners);
    return Promise.all(ends.map(({ promise }) => promise));
  };
  const calls = Array.from({ length: 12 }, (_, i) => call((i % 4) * 20, 20 + i));
  await Promise.all([...calls, call(3, 100, 5), taskGroup(3)]);
  await replaced.promise;
  await Promise.all(Array.from({ length: 4 }, (_, i) => call(i * 20, 10)));
  await engines.close();
  return readRecording(path);
}

test("a recording of real threads, one of them lost on the way, is decided the same again", async () => {
  const { head, entries, isCut } = await record();
  expect(isCut).toBe(false);
  const kinds = [...new Set<string>(entries.map(({ kind }) => kind))].sort();
  expect(kinds).toEqual(["abort", "call", "costs", "lost", "message", "replaced", "reported", "run", "step"]);
  expect(replay(head, entries)).toEqual({ divergence: null, breakdowns: [] });

  const step = entries.findLastIndex((entry) => entry.kind === "step");
  const changed = entries.with(step, { ...(entries[step] as RecordingEntry & { kind: "step" }), plan: 1 });
  expect(replay(head, changed)).toMatchObject({ divergence: { entry: step } });

  const workload = recordedWorkload(head, entries);
  let arrivals = 0;
  while (workload.next() !== null) arrivals += 1;
  expect(arrivals).toBe(20);
}, 60_000);
