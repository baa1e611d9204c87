import { afterEach, expect, test } from "bun:test";
import type { TokenId } from "../../base/token.ts";
import type { CacheSnapshot } from "../../scheduler/cache/cache-snapshot.ts";
import {
  chatService,
  type EngineId,
  type Finish,
  greedySampling,
  type Sampling,
} from "../../scheduler/core.ts";
import type { Unplaced } from "../../scheduler/fleet/fleet.ts";
import { ours } from "../../scheduler/policies.ts";
import type { DeviceSetup } from "./protocol.ts";
import { type EnginesConfig, type RunningEngines, startEngines } from "./start.ts";

/** Engines on real threads with simulated devices. */

const workerUrl = new URL("./worker.ts", import.meta.url).href;

const simulated: DeviceSetup = {
  kind: "simulated",
  spec: {
    name: "simulated",
    pages: 256,
    pageTokens: 16,
    stepTokensMax: 128,
    stepChunksMax: 64,
    contextMax: 1024,
    vocabSize: 1000,
  },
  cost: { stepMs: 0.2, tokenMs: 0 },
};

const sampling: Sampling = { ...greedySampling, seed: [7, 0] };

let running: RunningEngines | null = null;
/** Engine events in order. */
const news: string[] = [];
let firstLoss = Promise.withResolvers<void>();

async function start(engines: number, changes: Partial<EnginesConfig> = {}): Promise<RunningEngines> {
  news.length = 0;
  firstLoss = Promise.withResolvers();
  running = await startEngines(
    {
      workerUrl,
      engines,
      device: simulated,
      policy: ours(null),
      options: { integrity: "always" },
      record: null,
      ...changes,
    },
    () => {},
    () => ({
      onLost: (engine, reason, isComing) => {
        news.push(`${engine} lost, ${isComing ? "coming" : "gone"}: ${reason}`);
        firstLoss.resolve();
      },
      onReplaced: (engine) => {
        news.push(`${engine} back`);
      },
      onAllLost: () => {
        news.push("all lost");
      },
    }),
  );
  return running;
}

afterEach(async () => {
  await running?.close();
  running = null;
});

/** Runs one sequence to its end. `onToken` may abort it. */
function run(
  { fleet }: RunningEngines,
  promptTokens: readonly TokenId[],
  tokensMax: number,
  onToken: (count: number, abort: () => void) => void = () => {},
  draw: Sampling = sampling,
): Promise<{ tokens: TokenId[]; finish: Finish }> {
  return new Promise((resolve) => {
    const tokens: TokenId[] = [];
    const spec: Unplaced = {
      promptTokens,
      sampling: draw,
      stop: { tokensMax, tokensMin: 0, stopTokens: [] },
      cacheSalt: "",
      adapter: 0,
      service: chatService,
    };
    const id = fleet.submit(spec, {
      onStarted: () => {},
      onToken: (token) => {
        tokens.push(token);
        onToken(tokens.length, () => fleet.abort(id));
      },
      onFinish: (finish) => resolve({ tokens, finish }),
    });
  });
}

const prompt = (length: number, first = 1): TokenId[] => Array.from({ length }, (_, i) => (first + i) % 1000);

test("a sequence runs to its end on another thread, and all pages come back", async () => {
  const engines = await start(1);
  const { tokens, finish } = await run(engines, prompt(300), 40);
  expect(finish).toEqual({ kind: "length" });
  expect(tokens.length).toBe(40);
  expect(engines.fleet.active).toBe(0);
  const [load] = engines.fleet.loads();
  expect(load!.running + load!.waiting + load!.paused).toBe(0);
  expect(load!.pagesFree + load!.pagesCached).toBe(load!.pagesTotal);
});

test("many sequences on two engines get the tokens that each gets alone", async () => {
  const engines = await start(2);
  const prompts = Array.from({ length: 24 }, (_, i) => prompt(20 + i * 7, i * 3));
  const together = await Promise.all(prompts.map((tokens) => run(engines, tokens, 20)));
  for (const load of engines.fleet.loads()) expect(load.stepsTotal).toBeGreaterThan(0);
  const again = await start(1);
  for (const [i, tokens] of prompts.entries()) expect(await run(again, tokens, 20)).toEqual(together[i]!);
  await engines.close();
});

test("an aborted sequence ends within a step or two", async () => {
  const engines = await start(1);
  const { tokens, finish } = await run(engines, prompt(10), 900, (count, abort) => {
    if (count === 5) abort();
  });
  expect(finish).toEqual({ kind: "aborted" });
  expect(tokens.length).toBeLessThan(100);
});

test("close stops an engine in the middle of its work, and may be called again", async () => {
  const engines = await start(2);
  const started = Promise.withResolvers<void>();
  void run(engines, prompt(10), 1000, () => started.resolve());
  await started.promise;
  await Promise.all([engines.close(), engines.close()]);
  expect(news).toEqual([]);
});

test("what ran on a lost engine goes on elsewhere, with the same tokens and each token once", async () => {
  const drawn: Sampling = { ...sampling, temperature: 1, presencePenalty: 1 };
  const prompts = Array.from({ length: 8 }, (_, i) => prompt(40 + i * 9, i * 5));
  const runAll = (engines: RunningEngines) =>
    Promise.all(prompts.map((tokens) => run(engines, tokens, 60, () => {}, drawn)));
  const undisturbed = await runAll(await start(1));
  const engines = await start(2, { rehearsedLoss: { engine: 1 as EngineId, step: 30 } });
  expect(await runAll(engines)).toEqual(undisturbed);
  expect(news).toEqual(["1 lost, coming: a loss was rehearsed"]);
  expect(engines.fleet.active).toBe(0);
});

test("the only engine is replaced, and who came meanwhile has waited for it", async () => {
  const alone = await run(await start(1), prompt(50), 40);
  const engines = await start(1, { rehearsedLoss: { engine: 0 as EngineId, step: 10 } });
  const first = run(engines, prompt(50), 40);
  await firstLoss.promise;
  const second = run(engines, prompt(50), 40);
  expect([await first, await second]).toEqual([alone, alone]);
  expect(news).toEqual(["0 lost, coming: a loss was rehearsed", "0 back"]);
});

test("what no engine survives fails, and the others are served again", async () => {
  const engines = await start(1);
  const poison = run(engines, prompt(10), 5, () => {}, { ...sampling, logitBias: [null as never] }); // a bug on the main thread
  expect((await poison).finish.kind).toBe("failed");
  expect(news.filter((line) => line.includes("lost")).length).toBeLessThanOrEqual(3);
  expect((await run(engines, prompt(10), 5)).finish).toEqual({ kind: "length" });
}, 60_000);

test("close ends the wait for a replacement", async () => {
  const engines = await start(1, { rehearsedLoss: { engine: 0 as EngineId, step: 1 } });
  void run(engines, prompt(10), 5);
  await firstLoss.promise;
  await engines.close();
  expect(news).toEqual(["0 lost, coming: a loss was rehearsed"]);
});

test("an engine that cannot open its device rejects the start with the reason", async () => {
  const device: DeviceSetup = {
    kind: "cpu",
    library: "/nowhere/libbunting_cpu.so",
    folder: "/nowhere",
    model: { compute: "f32", isa: "auto", threads: 1, contextMax: null },
    limits: {
      threads: 1,
      pages: 1,
      pageTokens: 16,
      stepTokensMax: 16,
      stepChunksMax: 1,
      topLogprobsMax: 0,
    },
  };
  expect(start(2, { device })).rejects.toThrow("/nowhere/libbunting_cpu.so");
});

test("an idle engine burns no processor time", async () => {
  const engines = await start(2);
  await run(engines, prompt(10), 5);
  // Garbage collection and JIT work of earlier tests may continue for a while; a spinning thread would leave
  // no quiet window.
  let leastMs = Number.POSITIVE_INFINITY;
  for (let window = 0; window < 20 && leastMs > 10; window++) {
    const before = process.cpuUsage();
    await Bun.sleep(100);
    const { user, system } = process.cpuUsage(before);
    leastMs = Math.min(leastMs, (user + system) / 1000);
  }
  expect(leastMs).toBeLessThan(10);
});

test("each engine answers with a snapshot of its prefix cache", async () => {
  const caches = Promise.withResolvers<[EngineId, CacheSnapshot]>();
  running = await startEngines(
    { workerUrl, engines: 1, device: simulated, policy: ours(null), options: {}, record: null },
    () => {},
    () => ({ onCache: (engine, snapshot) => caches.resolve([engine, snapshot]) }),
  );
  await run(running, prompt(100), 10);
  running.inspect({ nodesMax: 2, textTokens: 3, owner: null });
  const [engine, { nodes, nodesTotal, pagesTotal, beginnings }] = await caches.promise;
  expect(beginnings?.map(({ length }) => length)).toEqual([0, 3]);
  expect([engine, nodesTotal, pagesTotal]).toEqual([0 as EngineId, expect.any(Number), 7]);
  // The root, and the first part of the sequence.
  expect(nodes.map(([, parent, start, , , pagesBelow]) => [parent, start, pagesBelow])).toEqual([
    [-1, 0, 7],
    [0, 0, 7],
  ]);
});
