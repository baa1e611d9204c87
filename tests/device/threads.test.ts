import { afterEach, expect, test } from "bun:test";
import { join } from "node:path";
import { chatService, type Finish, type TokenId } from "../../scheduler/core.ts";
import { staticBudget } from "../../scheduler/engine-options.ts";
import { sampling } from "../../scheduler/sim/factories.ts";
import type { DeviceSetup, LoadProgress } from "../../server/engine-protocol.ts";
import { type RunningEngines, startEngines } from "../../server/threads.ts";
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

async function start(
  engines: number,
  device: DeviceSetup,
  seen: LoadProgress[] = [],
): Promise<RunningEngines> {
  const workerUrl = new URL("../../server/engine-worker.ts", import.meta.url).href;
  running = await startEngines(
    {
      workerUrl,
      engines,
      device,
      options: { batch: staticBudget(32), integrity: "always", admission: { sequencesMax: 8 } },
    },
    {
      onProgress: (progress) => {
        seen.push(progress);
      },
      onLost: (_, reason) => {
        throw new Error(reason);
      },
    },
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
  const engines = await start(2, cpu, progress);
  expect(progress.at(-1)!.bytesDone).toBe(progress.at(-1)!.bytesTotal);
  expect(progress.filter(({ bytesDone, bytesTotal }) => bytesDone === bytesTotal).length).toBe(1); // loaded once
  const names = ["long", "branch", "short", "long", "branch", "short"] as const;
  const answers = await Promise.all(names.map((name) => greedy(engines, reference.prompts[name], 32)));
  expect(answers.map(({ tokens }) => tokens)).toEqual(names.map((name) => [...reference.greedy[name]]));
  for (const load of engines.fleet.loads()) expect(load.generatedTokensTotal).toBeGreaterThan(0);
});

test("engines stop in the middle of a step, the one that owns the model last", async () => {
  const engines = await start(2, cpu);
  const started = Promise.withResolvers<void>();
  for (let i = 0; i < 4; i++) void greedy(engines, reference.prompts.short, 64, () => started.resolve());
  await started.promise;
  await engines.close();
});

test("a folder that is no model rejects the start with its sentence", async () => {
  const folder = join(reference.dir, "..");
  await expect(start(2, { ...cpu, folder })).rejects.toThrow("neither model.safetensors nor");
});
