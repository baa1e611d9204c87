import { type CpuModel, closeCpuModel, openCpuDevice, openCpuModel } from "../gpu/cpu/open.ts";
import { openModelFolder } from "../gpu/model/folder.ts";
import { openLibrary } from "../gpu/native.ts";
import { SimulatedDevice } from "../gpu/simulated/device.ts";
import type { Clock } from "../scheduler/clock.ts";
import { linearCost } from "../scheduler/cost/linear.ts";
import type { Device } from "../scheduler/device.ts";
import type { DeviceSetup, LoadProgress } from "./engine-protocol.ts";

export interface OpenedDevice {
  readonly device: Device;
  /** For the engines that share it; null when the device needs none. */
  readonly model: CpuModel | null;
  /** Closes the device, and the model if this thread loaded it: then it must be the last engine that uses it. */
  close(): void;
}

/** Opens an engine's device on the calling thread. `shared` is the model another engine loaded; null loads it. */
export function openDevice(
  setup: DeviceSetup,
  shared: CpuModel | null,
  clock: Clock,
  onProgress: (progress: LoadProgress) => void,
): OpenedDevice {
  if (setup.kind === "simulated") {
    const { stepMs, tokenMs } = setup.cost ?? { stepMs: 5, tokenMs: 0.02 };
    const device = new SimulatedDevice(setup.spec, clock, linearCost(stepMs, tokenMs));
    return { device, model: null, close: () => device.close() };
  }
  const library = openLibrary(setup.library);
  const model =
    shared ??
    openCpuModel(library, openModelFolder(setup.folder), setup.model, (bytesDone, bytesTotal) =>
      onProgress({ bytesDone, bytesTotal }),
    );
  const closeModel = (): void => {
    if (shared === null) closeCpuModel(library, model);
  };
  try {
    const device = openCpuDevice(library, model, setup.limits);
    const close = (): void => {
      device.close();
      closeModel();
    };
    return { device, model, close };
  } catch (error) {
    closeModel();
    throw error;
  }
}
