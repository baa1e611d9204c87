import { openModelFolder } from "../../gpu/model/folder.ts";
import {
  closeNativeModel,
  type NativeModel,
  openCpuDevice,
  openGpuDevice,
  openNativeModel,
} from "../../gpu/native/open.ts";
import { openLibrary } from "../../gpu/native.ts";
import { SimulatedDevice } from "../../gpu/simulated/device.ts";
import type { Clock } from "../../scheduler/clock.ts";
import type { EngineId } from "../../scheduler/core.ts";
import { type LinearCost, linearCost, unknownCost } from "../../scheduler/cost/linear.ts";
import type { Device } from "../../scheduler/device.ts";
import { calibrate } from "./calibrate.ts";
import type { DeviceSetup, LoadProgress } from "./protocol.ts";

export interface OpenedDevice {
  readonly device: Device;
  /** What its steps cost, as far as is known before the first one that counts. */
  readonly costs: LinearCost;
  /** For the engines that share it; null when the device needs none. */
  readonly model: NativeModel | null;
  /** Frees the model if this thread loaded it: after every device that uses it is closed. */
  closeModel(): void;
}

/** Opens an engine's device on the calling thread. `shared` is the model another engine loaded; null loads it. */
export function openDevice(
  setup: DeviceSetup,
  engine: EngineId,
  shared: NativeModel | null,
  clock: Clock,
  onProgress: (progress: LoadProgress) => void,
): OpenedDevice {
  if (setup.kind === "simulated") {
    const { cost } = setup;
    const costs = cost === undefined ? unknownCost : linearCost(cost.stepMs, cost.tokenMs);
    return {
      device: new SimulatedDevice(setup.spec, clock, costs),
      costs,
      model: null,
      closeModel: () => {},
    };
  }
  const library = openLibrary(setup.library);
  const model =
    shared ??
    openNativeModel(library, openModelFolder(setup.folder), setup.model, (bytesDone, bytesTotal, stage) =>
      onProgress({ stage, bytesDone, bytesTotal }),
    );
  const closeModel = (): void => {
    if (shared === null) closeNativeModel(library, model);
  };
  try {
    const device =
      setup.kind === "gpu"
        ? openGpuDevice(library, model, setup.limits, setup.gpus[engine]!)
        : openCpuDevice(library, model, setup.limits);
    const isEmulated = setup.kind === "gpu" && setup.isEmulated;
    return { device, costs: isEmulated ? unknownCost : calibrate(device), model, closeModel };
  } catch (error) {
    closeModel();
    throw error;
  }
}
