/**
 * Report of `bunting doctor`: the machine, the hardware that the server would use, and the reasons why it
 * would not start.
 */

import { existsSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import {
  type Gpu,
  type Isa,
  isaNames,
  type Machine,
  NativeError,
  type NativeLibrary,
  openLibrary,
} from "../../gpu/native.ts";
import type { LoraAdapter } from "../../model/adapter.ts";
import type { Config } from "../config.ts";
import { type Backend, chooseBackend, findGpus } from "../engines/backend.ts";
import { withDraftPath } from "../engines/draft-plan.ts";
import type { ServingPlan } from "../engines/plan.ts";
import { Lifecycle } from "../http/lifecycle.ts";
import { modelFolder } from "../jobs/data-folder.ts";
import { ESTIMATE_TOKENS } from "../machine/estimate.ts";
import { type ModelSpeed, measureSpeed } from "../machine/model-speed.ts";
import { modelsOf } from "../models/model-settings.ts";
import { openingOf } from "../opening.ts";
import type { PlannedModel } from "../running-server.ts";
import { JOBS_NAME, severalOpening } from "../several-opening.ts";
import { version } from "../version.ts";
import { localModelPath, namedAsWritten } from "./model-argument.ts";
import { describeDraft, describeEngines, describeNumbers } from "./serve.ts";

/** State of an instruction set: this build or this processor may lack it, or a better one is used. */
export type IsaState = "used" | "available" | "absent" | "notBuilt";

/** Report of `doctor --json`. Fields may be added; a change of meaning raises `schema`. */
export interface DoctorReport {
  readonly schema: 1;
  readonly version: string;
  readonly bun: string;
  readonly platform: string;
  readonly arch: string;
  /** True if `serve` would start with the same settings. */
  readonly wouldStart: boolean;
  /** Reasons that prevent the start, in the order in which `serve` checks them; `serve` prints the first. */
  readonly refusals: readonly string[];
  readonly device: { readonly kind: string; readonly reason: string; readonly library: string } | null;
  readonly processor: {
    readonly name: string;
    readonly cores: number;
    readonly memoryBytes: number;
    readonly memoryFreeBytes: number;
    readonly instructionSets: readonly { readonly name: Isa; readonly state: IsaState }[];
  } | null;
  /** GPUs in use, or the reason for none. */
  readonly cuda: string;
  readonly gpus: readonly Gpu[];
  /** Library that multiplies matrices on the GPUs, with the reason; empty without GPUs. */
  readonly gemm: readonly string[];
  /** The server's model; null if it cannot be planned, for simulated devices, and for several models. */
  readonly model: PlannedOne | null;
  /** Models of a multi-model server. */
  readonly models: readonly PlannedModel[];
  /** Estimated speed of `model` for a single request; null where there is none. */
  readonly speed: SpeedReport | null;
  /** Folder of batch jobs; null if they are not kept. */
  readonly jobsFolder: string | null;
  readonly address: { readonly host: string; readonly port: number; readonly isFree: boolean };
}

interface PlannedOne {
  readonly names: readonly string[];
  readonly family: string;
  readonly layers: number;
  readonly hidden: number;
  readonly vocab: number;
  readonly weightFilesBytes: number;
  /** Number formats, such as "bf16 with weights in Q4_K". */
  readonly numbers: string;
  readonly engines: string;
  readonly contextTokens: number;
  readonly memory: readonly { readonly name: string; readonly bytes: number; readonly note: string }[];
  /** Draft model, such as "smol-135m, llama in int8"; null for none. */
  readonly draftModel: string | null;
  readonly adapters: readonly PlannedAdapter[];
  /** Sentence about KV pages of GPUs in host memory; null for none. */
  readonly kvHost: string | null;
  /** Sentence about KV pages on disk; null for none. */
  readonly kvDisk: string | null;
}

interface PlannedAdapter extends Pick<LoraAdapter, "path" | "rank" | "bytes"> {
  readonly name: string;
}

interface SpeedReport extends Omit<ModelSpeed, "ceilings"> {
  readonly readBytesPerSecond: number;
  readonly bf16OperationsPerSecond: number;
  readonly int8OperationsPerSecond: number;
  /** Tokens of the prompt, and of the context of a decode step, in the estimate. */
  readonly promptTokens: number;
}

/** Report on settings that could not be read, such as those of an invalid configuration file. */
export async function refusedReport(refusal: string): Promise<DoctorReport> {
  return await reportOf(null, [refusal], { plan: null, models: [] }, false);
}

/** Opens all parts of a server except its engines, and closes them again. */
export async function examine(given: Config, model: string | null): Promise<DoctorReport> {
  const config = namedAsWritten(given, model);
  const found: Found = { plan: null, models: [] };
  const lifecycle = new Lifecycle("loading");
  // An unusable default folder does not prevent a start, and must not be created here.
  const settings: Config = { ...config, data: config.data === "auto" ? "off" : config.data };
  const made = typeof config.data === "object" ? firstMissing(config.data.folder) : null;
  try {
    const opening = openingFor(await withDraftPath(settings, localModelPath), model, found, lifecycle);
    const refusals = await opening.parts.refusals();
    const isFree = await opening.address().then(
      () => true,
      () => false,
    );
    const report = await reportOf(config, refusals, found, isFree);
    await opening.parts.close();
    return report;
  } catch (error) {
    return await reportOf(config, [(error as Error).message], found, false);
  } finally {
    if (made !== null) rmSync(made, { recursive: true, force: true });
  }
}

/** Plans made while the parts were opened. */
interface Found {
  plan: ServingPlan | null;
  models: readonly PlannedModel[];
}

/** Parts of the server. Throws ConfigError for incompatible options. */
function openingFor(config: Config, model: string | null, found: Found, lifecycle: Lifecycle) {
  const dir = model === null ? null : localModelPath(model);
  const several = modelsOf(config, dir);
  const onPlan = (plan: ServingPlan): void => {
    found.plan = plan;
  };
  if (several.length === 0) return openingOf(config, dir, { onPlan }, lifecycle);
  const onModels = (models: readonly PlannedModel[]): void => {
    found.models = models;
  };
  const modelPath = async (name: string): Promise<string> => localModelPath(name);
  return severalOpening(config, several, { onModels, modelPath }, lifecycle);
}

/** Outermost missing folder of a path; null if the path exists. */
function firstMissing(path: string): string | null {
  if (existsSync(path)) return null;
  const parent = dirname(path);
  return parent === path ? null : (firstMissing(parent) ?? path);
}

async function reportOf(
  config: Config | null,
  refusals: readonly string[],
  { plan, models }: Found,
  isFree: boolean,
): Promise<DoctorReport> {
  const device = config?.device ?? { kind: "auto" as const };
  const isSimulated = device.kind === "simulated";
  // Simulated engines load nothing, but the report on the CPU is still useful.
  const backend = await chooseBackend(isSimulated ? { kind: "cpu", engines: 1 } : device).catch(() => null);
  const library = backend === null ? null : libraryOf(backend);
  const speed = plan === null || library === null || refusals.length > 0 ? null : measureSpeed(library, plan);
  return {
    schema: 1,
    version,
    bun: Bun.version,
    platform: process.platform,
    arch: process.arch,
    wouldStart: refusals.length === 0,
    refusals,
    device:
      backend === null
        ? null
        : {
            kind: isSimulated ? "simulated" : backend.kind,
            reason: backend.reason,
            library: backend.library,
          },
    processor: library === null ? null : processorOf(library.machineProbe()),
    cuda: await cudaText(backend),
    gpus: plan?.gpus ?? [],
    gemm: plan === null || plan.gpus.length === 0 ? [] : gemmTexts(plan),
    model: plan === null ? null : plannedOne(plan),
    models,
    speed: speed === null ? null : speedReport(speed),
    jobsFolder:
      config === null ? null : jobsFolderOf(config, plan?.names[0] ?? (models.length > 0 ? JOBS_NAME : null)),
    address: { host: config?.host ?? "", port: config?.port ?? 0, isFree },
  };
}

/** Library of the engine; null if it cannot be loaded. Planning the model then reports why. */
function libraryOf({ library }: Backend): NativeLibrary | null {
  try {
    return openLibrary(library);
  } catch (error) {
    if (error instanceof NativeError) return null;
    throw error;
  }
}

function processorOf(machine: Machine): DoctorReport["processor"] {
  const best = isaNames.indexOf(machine.isaBest);
  const built = isaNames.indexOf(machine.isaBuilt);
  const used = Math.min(best, built);
  const stateOf = (level: number): IsaState =>
    level === used ? "used" : level < used ? "available" : level > best ? "absent" : "notBuilt";
  const { processor: name, cores, memoryBytes, memoryFreeBytes } = machine;
  const instructionSets = isaNames
    .filter((isa) => process.arch === "x64" || isa === "portable")
    .map((isa) => ({ name: isa, state: stateOf(isaNames.indexOf(isa)) }));
  return { name, cores, memoryBytes, memoryFreeBytes, instructionSets };
}

function plannedOne(plan: ServingPlan): PlannedOne {
  const { folder, names, contextMax, draft, adapters, memory, host, disk } = plan;
  const { shape, family } = folder.config;
  return {
    names,
    family,
    layers: shape.layers.length,
    hidden: shape.hidden,
    vocab: shape.vocab,
    weightFilesBytes: folder.weightFilesBytes,
    numbers: describeNumbers(plan),
    engines: describeEngines(plan),
    contextTokens: contextMax,
    memory: memory.rows,
    draftModel: draft === null ? null : describeDraft(draft),
    adapters: [...adapters].map(([name, { path, rank, bytes }]) => ({ name, path, rank, bytes })),
    kvHost: host.note,
    kvDisk: disk.note,
  };
}

function speedReport({ ceilings, ...speed }: ModelSpeed): SpeedReport {
  return {
    ...speed,
    promptTokens: ESTIMATE_TOKENS,
    readBytesPerSecond: ceilings.read,
    bf16OperationsPerSecond: ceilings.bf16,
    int8OperationsPerSecond: ceilings.int8,
  };
}

/** `name`: that of the default folder; null if unknown. */
function jobsFolderOf(config: Config, name: string | null): string | null {
  const { data } = config;
  if (typeof data === "object") return data.folder;
  return name === null ? null : modelFolder(config, name);
}

/** Describes the GPUs in use, or the reason for none. */
async function cudaText(backend: Backend | null): Promise<string> {
  if (backend?.kind === "cuda") return `used: ${backend.reason}`;
  const found = await findGpus();
  if (found.count > 0) return `not used, though ${found.reason}: another device was asked for`;
  return `not used: ${found.reason}`;
}

/** Library that multiplies matrices on the GPUs, with the reason. */
function gemmTexts({ cublaslt, backend }: ServingPlan): string[] {
  if (cublaslt !== null)
    return [
      `${cublaslt} for more than 64 tokens of a step, because it was asked for and computes what it should; answers may depend on what else is running`,
    ];
  const own = "own kernels, because with them an answer does not depend on what else is running";
  try {
    const name = openLibrary(backend.library).cublasltProbe(backend.gpus![0]!);
    return [own, `not used: ${name}, which --gemm cublaslt would take`];
  } catch (error) {
    if (!(error instanceof NativeError)) throw error;
    return [own, `--gemm cublaslt cannot be had: ${error.message}`];
  }
}
