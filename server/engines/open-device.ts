import type { Clock } from "../../base/clock.ts";
import type { NativeDevice } from "../../gpu/native/device.ts";
import {
  closeNativeModel,
  type LoadListener,
  type NativeModel,
  openCpuDevice,
  openGpuDevice,
  openNativeModel,
} from "../../gpu/native/open.ts";
import { type NativeLibrary, openLibrary } from "../../gpu/native.ts";
import { SimulatedDevice } from "../../gpu/simulated/device.ts";
import { type LoraAdapter, openAdapter } from "../../model/adapter.ts";
import { openModelFolder } from "../../model/folder.ts";
import { ModelError } from "../../model/model-error.ts";
import type { ModelFolder } from "../../model/model-folder.ts";
import type { EngineId } from "../../scheduler/core.ts";
import { LinearCost, linearCost, unknownCost } from "../../scheduler/cost/linear.ts";
import type { PriorState } from "../../scheduler/cost/online.ts";
import type { Device } from "../../scheduler/device.ts";
import { atSpeedOf, calibrate } from "./calibrate.ts";
import { KeptCosts } from "./kept-costs.ts";
import type { DeviceSetup, LoadProgress, StartTimes } from "./protocol.ts";
import { oneToken, timeStep } from "./trial.ts";

export interface OpenedDevice {
  readonly device: Device;
  /** Device memory that holds the KV pages; null for a simulated device. */
  readonly memory: NativeDevice | null;
  /** Initial cost model, before the first real step. */
  readonly costs: LinearCost;
  /** Stores the costs estimated from served steps, for the next start. */
  keepCosts(learnt: LinearCost): void;
  /** Time to load the model, and of the first steps, which warm up and show the device's speed. */
  readonly times: StartTimes;
  /** Loaded model, for the engines that share it; null if the device needs none. */
  readonly model: NativeModel | null;
  /** Frees the model if this thread loaded it. Every device that uses it must be closed before. */
  closeModel(): void;
}

/** Model and costs of the first engine, for engines that open later; null for the first one. */
export interface Shared {
  readonly model: NativeModel | null;
  readonly costs: PriorState | null;
}

type NativeSetup = Exclude<DeviceSetup, { kind: "simulated" }>;

/**
 * Opens an engine's device on the calling thread, and loads the model if `shared` has none. Calls `onLoaded`
 * before the first steps, whose times other work on the machine would falsify.
 */
export function openDevice(
  setup: DeviceSetup,
  engine: EngineId,
  shared: Shared,
  clock: Clock,
  onProgress: (progress: LoadProgress) => void,
  onLoaded: () => void = () => {},
): OpenedDevice {
  if (setup.kind === "simulated") {
    onLoaded();
    const { cost } = setup;
    const costs = cost === undefined ? unknownCost : linearCost(cost.stepMs, cost.tokenMs);
    return {
      device: new SimulatedDevice(setup.spec, clock, costs),
      memory: null,
      costs,
      keepCosts: () => {},
      times: { loadMs: 0, stepsMs: 0 },
      model: null,
      closeModel: () => {},
    };
  }
  const startedMs = performance.now();
  const library = openLibrary(setup.library);
  const onLoad: LoadListener = (bytesDone, bytesTotal, stage) => onProgress({ stage, bytesDone, bytesTotal });
  const model = shared.model ?? openModels(library, setup, onLoad);
  const closeModel = (): void => {
    if (shared.model === null) closeNativeModel(library, model);
  };
  let device: NativeDevice | null = null;
  try {
    device =
      setup.kind === "gpu"
        ? openGpuDevice(library, model, setup.limits, setup.gpus[engine]!, onLoad)
        : openCpuDevice(library, model, setup.limits);
    const loadMs = performance.now() - startedMs;
    onLoaded();
    const stepsFromMs = performance.now();
    const costs = costsOf(setup, engine, library, device, model, shared);
    const times = { loadMs, stepsMs: performance.now() - stepsFromMs };
    return { device, memory: device, ...costs, times, model, closeModel };
  } catch (error) {
    device?.close();
    closeModel();
    throw error;
  }
}

/** Opens the model, and its draft model if there is one. */
function openModels(library: NativeLibrary, setup: NativeSetup, onLoad: LoadListener): NativeModel {
  const folder = folderOf(setup);
  for (const adapter of setup.model.adapters ?? []) expectUnchanged(adapter, folder);
  const model = openNativeModel(library, folder, setup.model, onLoad);
  if (!setup.draft) return model;
  try {
    const { folder: path, model: options } = setup.draft;
    return { ...model, draft: openNativeModel(library, openModelFolder(path), options, onLoad) };
  } catch (error) {
    closeNativeModel(library, model);
    throw error;
  }
}

/**
 * Refuses an adapter whose files have changed since the server read them, for models that are loaded again: pages on
 * disk are known by its earlier contents.
 */
function expectUnchanged({ path, id }: LoraAdapter, model: ModelFolder): void {
  if (openAdapter(path, model).id !== id)
    throw new ModelError(path, null, "has changed since the server read it: start the server again");
}

/** Opens the model folder, with the model's own draft head if the engine drafts with it. */
function folderOf({ folder, ropeScaling, limits, draft }: NativeSetup): ModelFolder {
  const hasHead = limits.draftsMax !== undefined && !draft;
  return openModelFolder(folder, ropeScaling, hasHead ? "required" : "none");
}

/**
 * Step costs: those of the first engine if this device is of the same kind, else those that an earlier start
 * stored, scaled to the present speed. Else an estimate from a few steps.
 */
function costsOf(
  setup: NativeSetup,
  engine: EngineId,
  library: NativeLibrary,
  device: NativeDevice,
  model: NativeModel,
  shared: Shared,
): Pick<OpenedDevice, "costs" | "keepCosts"> {
  const keepCosts = (): void => {};
  if (setup.kind === "gpu" && setup.isEmulated) return { costs: unknownCost, keepCosts };
  const bench = { device, nowMs: () => performance.now() };
  timeStep(bench, oneToken); // warms up, and fails here instead of in a request
  const machineOf = (index: EngineId): string =>
    setup.kind === "gpu" ? setup.gpuNames[index]! : library.machineProbe().processor;
  const machine = machineOf(engine);
  if (shared.costs?.kind === "linear" && machine === machineOf(0 as EngineId))
    return { costs: LinearCost.from(shared.costs), keepCosts };
  const { isa, costsPlace } = model;
  if (costsPlace === null) return { costs: calibrate(bench, model), keepCosts };
  const { packedFolders: _, costsFolders: __, adapters: ___, ...compute } = setup.model;
  const { threads, gemm, stepTokensMax, draftsMax = 0 } = setup.limits; // only these: memory limits change between starts
  const drafts = draftsMax > 0 ? [draftsMax, ...(setup.draft ? [setup.draft] : [])] : [];
  const choices = [isa, compute, threads, gemm ?? null, stepTokensMax, ...drafts];
  const kept = new KeptCosts(costsPlace, { library: setup.library, machine, choices });
  const known = kept.read();
  const costs = known === null ? calibrate(bench, model) : atSpeedOf(bench, known);
  if (known === null) kept.write(costs);
  return { costs, keepCosts: (learnt) => kept.write(learnt) };
}
