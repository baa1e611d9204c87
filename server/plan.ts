/** What a server will run and how much memory it takes, worked out before anything is allocated. */

import { type MemoryPlan, planMemory } from "../gpu/memory.ts";
import { type ModelFolder, openModelFolder } from "../gpu/model/folder.ts";
import type { ComputeOptions, EngineLimits, Machine, NativeLibrary } from "../gpu/native.ts";
import { type Config, ConfigError } from "./config.ts";

/** Tokens per KV page. */
export const PAGE_TOKENS = 16;
/** Most alternatives per token that a request may ask for. */
export const TOP_LOGPROBS_MAX = 20;

export interface ServingPlan {
  /** Names of the model for clients; the first is shown in answers. */
  readonly names: readonly string[];
  readonly folder: ModelFolder;
  readonly machine: Machine;
  readonly engines: number;
  readonly compute: ComputeOptions;
  /** Of each engine. */
  readonly limits: EngineLimits;
  /** Longest sequence in tokens. */
  readonly contextMax: number;
  readonly memory: MemoryPlan;
}

/** Throws ConfigError and ModelError. A plan that does not fit is a value: `memory.kind` is "refused". */
export function planServing(config: Config, library: NativeLibrary, dir: string): ServingPlan {
  const machine = library.machineProbe();
  const folder = openModelFolder(dir);
  const contextMax = chooseContext(config, folder);
  const shape = { ...folder.config.shape, contextMax };
  const engines = config.device.kind === "cpu" ? config.device.engines : 1;
  const threads = chooseThreads(config, machine);
  if (engines > threads) {
    throw new ConfigError(
      `--device cpu:${engines} asks for ${engines} engines, but there are ${threads} threads to share; use fewer engines or more --threads.`,
    );
  }

  const compute: ComputeOptions = { compute: chooseCompute(config, folder), isa: "auto", threads };
  const perEngine = {
    threads: Math.max(1, Math.floor(threads / engines)),
    pageTokens: PAGE_TOKENS,
    stepTokensMax: stepTokensMax(config),
    stepChunksMax: config.sequencesMax,
    topLogprobsMax: TOP_LOGPROBS_MAX,
  };
  const { weightBytes, pageBytes } = library.modelPlan(shape, compute, PAGE_TOKENS);
  const memory = planMemory({
    compute: compute.compute,
    weightBytes,
    pageBytes,
    pageTokens: PAGE_TOKENS,
    workspaceBytes: library.enginePlan(shape, compute, { ...perEngine, pages: 1 }),
    engines,
    contextMax,
    availableBytes: machine.memoryFreeBytes,
    kvBytes: config.kvCacheGib > 0 ? config.kvCacheGib * 2 ** 30 : null,
  });
  const limits = { ...perEngine, pages: memory.kind === "fits" ? memory.pages : 0 };
  return { names: modelNames(config, folder), folder, machine, engines, compute, limits, contextMax, memory };
}

/** Tokens that a step has room for: prompts get up to `--step-tokens`, but everybody who runs has one in any case. */
export function stepTokensMax({ stepTokens, sequencesMax }: Pick<Config, "stepTokens" | "sequencesMax">): number {
  return Math.max(stepTokens, sequencesMax);
}

/** Names of the model for clients. */
export function modelNames(config: Config, folder: ModelFolder): readonly string[] {
  return config.servedModelName.length > 0 ? config.servedModelName : [folder.name];
}

/** The longest sequence: asked for, or the model's own. */
export function chooseContext(config: Config, folder: ModelFolder): number {
  if (config.maxModelLen > folder.contextMax) {
    throw new ConfigError(
      `--max-model-len ${config.maxModelLen} is more than the ${folder.contextMax} tokens that the model was made for.`,
    );
  }
  return config.maxModelLen > 0 ? config.maxModelLen : folder.contextMax;
}

/** All cores; from four on one is left to the thread that serves HTTP. */
function chooseThreads(config: Config, { cores }: Machine): number {
  if (config.threads > 0) return config.threads;
  return cores >= 4 ? cores - 1 : cores;
}

const F32 = 0;

function chooseCompute(config: Config, folder: ModelFolder): "bf16" | "f32" {
  if (config.dtype !== "auto") return config.dtype;
  return folder.tensors.every(({ dtype }) => dtype === F32) ? "f32" : "bf16";
}

/** Why the model does not fit, with what would help; null when it does. */
export function planProblem(memory: MemoryPlan): string | null {
  if (memory.kind === "fits") return null;
  return [
    `The model does not fit: ${memory.reason}.`,
    ...memory.advice.map((advice) => `  - ${advice}`),
  ].join("\n");
}
