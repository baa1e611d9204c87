/** A GPU as a device: the same model in memory as for the CPU, from which each engine takes a copy for its GPU. */
import type { CpuDevice } from "../cpu/device.ts";
import { type CpuModel, openNamedDevice } from "../cpu/open.ts";
import type { EngineLimits, NativeLibrary } from "../native.ts";

/** Takes all the memory of the GPU that the engine will ever use. Throws NativeError. */
export function openGpuDevice(
  library: NativeLibrary,
  model: CpuModel,
  limits: EngineLimits,
  gpu: number,
): CpuDevice {
  const { name } = library.deviceProbe(gpu);
  return openNamedDevice(library, model, { ...limits, device: gpu }, `gpu ${gpu} (${name})`);
}
