/**
 * Effect of a job's order on the CPU engine, with the same prompts, engine and memory. Three orders run in
 * turn: as jobs are served, as in the file, and all at once, so that the engine's queue orders the waiting
 * prompts. Each turn begins with an empty cache.
 */

import { openLibrary } from "../../gpu/native.ts";
import { BatchAdmission, type BatchItem, type BatchRoom } from "../../scheduler/batch/batch-admission.ts";
import { orderOf } from "../../scheduler/batch/groups.ts";
import { oneLevel } from "../../scheduler/batch/one-level.ts";
import { PrefixTree, promptTable } from "../../scheduler/batch/prefix-tree.ts";
import { chatService, greedySampling, type Objective } from "../../scheduler/core.ts";
import { ours } from "../../scheduler/policies.ts";
import { makeConfig } from "../../server/config.ts";
import { chooseBackend } from "../../server/engines/backend.ts";
import { planServing } from "../../server/engines/plan.ts";
import { type RunningEngines, startEngines } from "../../server/engines/start.ts";
import { type JobShape, jobPrompts } from "../../simulation/workloads/job.ts";
import { promptOf } from "../../simulation/workloads/parts.ts";

export const orders = ["grouped", "as in the file", "at once"] as const;
export type Order = (typeof orders)[number];

/** Results of one turn. */
export interface Turn {
  readonly seconds: number;
  /** Share of prompt tokens that were cached. */
  readonly cachedShare: number;
}

/** Prompt with its position in the job. */
interface Placed extends BatchItem {
  readonly prompt: Int32Array;
}

export class OrdersBench {
  readonly #engines: RunningEngines;
  readonly #prompts: readonly Int32Array[];
  readonly #outputTokens: number;
  readonly #room: BatchRoom;
  #turns = 0;

  private constructor(engines: RunningEngines, shape: JobShape) {
    const [spec] = engines.specs;
    this.#engines = engines;
    this.#outputTokens = shape.outputTokens;
    this.#room = {
      tokens: spec!.pages * spec!.pageTokens,
      sequences: spec!.stepChunksMax,
      stepTokens: spec!.stepTokensMax,
    };
    this.#prompts = jobPrompts(shape, 1).map(({ parts }) =>
      promptOf(parts)().map((token) => (token >>> 0) % spec!.vocabSize),
    );
  }

  /** `contextMax`: tokens of the longest sequence. */
  static async open(
    folder: string,
    kvCacheGib: number,
    contextMax: number,
    shape: JobShape,
  ): Promise<OrdersBench> {
    const device = { kind: "cpu", engines: 1 } as const;
    const config = makeConfig({ device, quant: "int8", kvCacheGib, maxModelLen: contextMax });
    const backend = await chooseBackend(device);
    const { library } = backend;
    const { compute, packedFolders, limits } = planServing(config, backend, openLibrary(library), folder);
    const model = { ...compute, contextMax, packedFolders };
    const engines = Promise.withResolvers<RunningEngines>();
    await startEngines(
      {
        workerUrl: new URL("../../server/engines/worker.ts", import.meta.url).href,
        engines: 1,
        device: { kind: "cpu", library, folder, model, limits },
        policy: ours(),
        options: {},
        record: null,
      },
      () => {},
      (running) => {
        engines.resolve(running);
        return {};
      },
    );
    return new OrdersBench(await engines.promise, shape);
  }

  close(): Promise<void> {
    return this.#engines.close();
  }

  /** Computes all prompts in an order. */
  async run(order: Order): Promise<Turn> {
    const items = order === "grouped" ? this.#grouped() : this.#asInFile();
    const room =
      order === "at once"
        ? {
            tokens: Number.POSITIVE_INFINITY,
            sequences: Number.POSITIVE_INFINITY,
            stepTokens: Number.POSITIVE_INFINITY,
          }
        : this.#room;
    // Task groups are served in order of arrival, and otherwise like a job that is alone.
    const objective = order === "as in the file" ? "gang" : "throughput";
    const feed = new BatchAdmission(items, room);
    const cacheSalt = String(this.#turns++);
    const startMs = performance.now();
    let cached = 0;
    await new Promise<void>((resolve, reject) => {
      const give = (): void => {
        for (let place = feed.next(); place !== null; place = feed.next()) {
          const at = place;
          this.#submit(items[at]!.prompt, cacheSalt, objective, {
            onStarted: (tokens) => {
              cached += tokens;
            },
            onFinish: (kind) => {
              if (kind !== "length") reject(new Error(`a prompt ended as ${kind}`));
              feed.ended(at, this.#outputTokens);
              if (feed.isDone) resolve();
              else give();
            },
          });
        }
      };
      give();
    });
    const tokens = this.#prompts.reduce((sum, { length }) => sum + length, 0);
    return { seconds: (performance.now() - startMs) / 1000, cachedShare: cached / tokens };
  }

  #submit(
    promptTokens: Int32Array,
    cacheSalt: string,
    objective: Objective,
    told: { onStarted(cached: number): void; onFinish(kind: string): void },
  ): void {
    const stop = { tokensMax: this.#outputTokens, tokensMin: this.#outputTokens, stopTokens: [] };
    const service = { ...chatService, objective };
    const spec = { promptTokens, sampling: greedySampling, stop, cacheSalt, adapter: 0, service };
    let isStarted = false;
    this.#engines.fleet.submit(spec, {
      // Repeated after a preemption: the sequence's own pages are then cached.
      onStarted: (tokens) => {
        if (!isStarted) told.onStarted(tokens);
        isStarted = true;
      },
      onToken: () => {},
      onFinish: ({ kind }) => told.onFinish(kind),
    });
  }

  #grouped(): Placed[] {
    const tree = new PrefixTree(promptTable(this.#prompts));
    const { prompts, sharedTokens } = orderOf(tree, oneLevel(tree), () => this.#outputTokens);
    return Array.from(prompts, (index, place) => this.#place(this.#prompts[index]!, sharedTokens[place]!));
  }

  #asInFile(): Placed[] {
    return this.#prompts.map((prompt) => this.#place(prompt, 0));
  }

  #place(prompt: Int32Array, sharedTokens: number): Placed {
    return { prompt, newTokens: prompt.length - sharedTokens, tokensMax: this.#outputTokens };
  }
}
