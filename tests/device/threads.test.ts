import { afterEach, expect, test } from "bun:test";
import { join } from "node:path";
import type { TokenId } from "../../base/token.ts";
import { chatService, type EngineId, type Finish } from "../../scheduler/core.ts";
import { ours } from "../../scheduler/policies.ts";
import type { DeviceSetup, LoadProgress } from "../../server/engines/protocol.ts";
import { type EnginesConfig, type RunningEngines, startEngines } from "../../server/engines/start.ts";
import { sampling } from "../../simulation/factories.ts";
import { referenceModel } from "../reference/models.ts";
import { cpuLibraryPath } from "./library.ts";

/** CPU engines on threads of their own, sharing one model. */

const reference = referenceModel("qwen3");
const cpu: DeviceSetup = {
  kind: "cpu",
  library: cpuLibraryPath(),
  folder: reference.dir,
  model: { compute: "f32", isa: "auto", threads: 1, contextMax: null },
  limits: { threads: 1, pages: 64, pageTokens: 16, stepTokensMax: 32, stepChunksMax: 8, topLogprobsMax: 0 },
};

let running: RunningEngines | null = null;
let replaced = Promise.withResolvers<void>();

async function start(
  engines: number,
  changes: Partial<EnginesConfig> = {},
  seen: LoadProgress[] = [],
): Promise<RunningEngines> {
  replaced = Promise.withResolvers();
  const workerUrl = new URL("../../server/engines/worker.ts", import.meta.url).href;
  running = await startEngines(
    {
      workerUrl,
      engines,
      device: cpu,
      policy: ours(),
      options: { integrity: "always" },
      record: null,
      ...changes,
    },
    (progress) => {
      seen.push(progress);
    },
    () => ({
      onLost: (_, reason) => {
        if (changes.rehearsedLoss === undefined) throw new Error(reason);
      },
      onReplaced: () => replaced.resolve(),
    }),
  );
  return running;
}

afterEach(async () => {
  await running?.close();
  running = null;
});

function greedy(
  { fleet }: RunningEngines,
  promptTokens: readonly TokenId[],
  tokensMax: number,
  onToken: () => void = () => {},
): Promise<{ tokens: TokenId[]; finish: Finish }> {
  return new Promise((resolve) => {
    const tokens: TokenId[] = [];
    fleet.submit(
      {
        promptTokens,
        sampling: sampling(),
        stop: { tokensMax, tokensMin: 0, stopTokens: [] },
        cacheSalt: "",
        adapter: 0,
        service: chatService,
      },
      {
        onStarted: () => {},
        onToken: (token) => {
          tokens.push(token);
          onToken();
        },
        onFinish: (finish) => resolve({ tokens, finish }),
      },
    );
  });
}

test("two engines with one model draw the reference's tokens side by side", async () => {
  const progress: LoadProgress[] = [];
  const engines = await start(2, {}, progress);
  expect(progress.at(-1)!.bytesDone).toBe(progress.at(-1)!.bytesTotal);
  expect(progress.filter(({ bytesDone, bytesTotal }) => bytesDone === bytesTotal).length).toBe(1); // loaded once
  const names = ["long", "branch", "short", "long", "branch", "short"] as const;
  const answers = await Promise.all(names.map((name) => greedy(engines, reference.prompts[name], 32)));
  expect(answers.map(({ tokens }) => tokens)).toEqual(names.map((name) => [...reference.greedy[name]]));
  for (const load of engines.fleet.loads()) expect(load.generatedTokensTotal).toBeGreaterThan(0);
});

test("when the engine that loaded the model is lost, its texts go on elsewhere, and it comes back", async () => {
  const engines = await start(2, { rehearsedLoss: { engine: 0 as EngineId, step: 6 } });
  const names = ["long", "branch", "short", "long", "branch", "short"] as const;
  const expected = names.map((name) => [...reference.greedy[name]]);
  const ask = async () => {
    const answers = await Promise.all(names.map((name) => greedy(engines, reference.prompts[name], 32)));
    return answers.map(({ tokens }) => tokens);
  };
  expect(await ask()).toEqual(expected);
  await replaced.promise;
  expect(await ask()).toEqual(expected);
  for (const load of engines.fleet.loads()) expect(load.generatedTokensTotal).toBeGreaterThan(0);
}, 60_000);

test("engines stop in the middle of a step, the one that owns the model last", async () => {
  const engines = await start(2);
  const started = Promise.withResolvers<void>();
  for (let i = 0; i < 4; i++) void greedy(engines, reference.prompts.short, 64, () => started.resolve());
  await started.promise;
  await engines.close();
});

test("a folder that is no model rejects the start with its sentence", async () => {
  const folder = join(reference.dir, "..");
  await expect(start(2, { device: { ...cpu, folder } })).rejects.toThrow("neither model.safetensors, nor");
});
