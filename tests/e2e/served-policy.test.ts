/** The policy that a server starts with equals the benchmarks' own, as a whole value. */

import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { preblePolicies } from "../../benchmarks/papers/preble.ts";
import { engineDefaults, optionsOf, resolveOptions } from "../../scheduler/engine/engine-options.ts";
import { ours } from "../../scheduler/policies.ts";
import type { Policy } from "../../scheduler/policy.ts";
import type { RecordingHead } from "../../scheduler/recording/recording.ts";
import { type Config, makeConfig } from "../../server/config.ts";
import { readRecording } from "../../server/recording/file.ts";
import { startServer } from "../../server/start.ts";
import { policyOf } from "../../simulation/baselines/policies.ts";
import { demoFolder } from "./server.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-policy-"));
afterAll(() => rmSync(scratch, { recursive: true }));

/** Returns the recording head of a server started with these settings. */
async function started(settings: Partial<Config>): Promise<RecordingHead> {
  const record = join(scratch, "recording");
  const device = { kind: "simulated", engines: 2 } as const;
  const config = makeConfig({ device, port: 0, record, ...settings });
  const server = await startServer(config, demoFolder, { onPlan: () => {}, onProgress: () => {} });
  await server.drain(1000);
  return readRecording(record).head;
}

test("a server without options schedules as the benchmarks' own row, and so does `bunting simulate`", async () => {
  const { policy, specs } = await started({});
  expect<Policy>(policy).toEqual(preblePolicies().find(({ name }) => name === "ours")!);
  expect<Policy>(policy).toEqual(policyOf("ours"));
  expect(optionsOf(policy, specs[0]!, 1)).toEqual(resolveOptions({}, specs[0]!));
  const { queue, batch, admission } = engineDefaults;
  expect({ queue, batch, admission }).toEqual({
    queue: policy.queue,
    batch: policy.batch,
    admission: policy.admission,
  });
});

test("a target is the policy's; limits of tokens and sequences are the device's", async () => {
  const { policy, specs } = await started({ tbtMs: 150, stepTokens: 512, sequencesMax: 9 });
  expect(policy).toEqual(ours(150));
  expect(specs.map(({ stepTokensMax, stepChunksMax }) => [stepTokensMax, stepChunksMax])).toEqual([
    [512, 9],
    [512, 9],
  ]);
});
