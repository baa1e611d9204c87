/** Chooses the native library and the GPUs, with a reason. Runs before anything is loaded. */

import { existsSync } from "node:fs";
import { probeDriver } from "../../gpu/cuda-driver.ts";
import { type Gpu, NativeError, openLibrary } from "../../gpu/native.ts";
import { type EngineLibrary, isExecutable, libraryPath } from "../assets.ts";
import { ConfigError, type DeviceChoice } from "../config.ts";

export interface Backend {
  readonly kind: EngineLibrary;
  /** Path of the library. */
  readonly library: string;
  readonly engines: number;
  /** GPU index of each engine; null if engines share the CPU. */
  readonly gpus: readonly number[] | null;
  /** Reason of the choice, as a part of a sentence. */
  readonly reason: string;
}

/** Device setting that computes a real model. */
export type NativeChoice = Exclude<DeviceChoice, { readonly kind: "simulated" }>;

/**
 * Resolves the device setting. Throws ConfigError if the requested device is unavailable; `auto` always finds
 * one.
 */
export async function chooseBackend(device: NativeChoice): Promise<Backend> {
  const asked = "it was asked for";
  switch (device.kind) {
    case "cpu":
      return {
        kind: "cpu",
        library: await libraryPath("cpu"),
        engines: device.engines,
        gpus: null,
        reason: asked,
      };
    case "emu":
      return await onGpus("emu", null, asked);
    case "cuda":
      return await onGpus("cuda", device.gpus, asked);
    case "auto": {
      const found = await findGpus();
      if (found.count > 0) return await onGpus("cuda", null, found.reason);
      return { kind: "cpu", library: await libraryPath("cpu"), engines: 1, gpus: null, reason: found.reason };
    }
  }
}

export interface FoundGpus {
  readonly count: number;
  /** Description of the GPUs, or the reason why none is usable; a part of a sentence. */
  readonly reason: string;
}

/** Finds the GPUs of this machine that this build supports. Never throws. */
export async function findGpus(): Promise<FoundGpus> {
  try {
    const path = await libraryPath("cuda");
    if (!existsSync(path)) return { count: 0, reason: missingEngine() };
    const { devices, name } = openLibrary(path).deviceProbe(0);
    return { count: devices, reason: counted(devices, name) };
  } catch (error) {
    return { count: 0, reason: error instanceof Error ? error.message : String(error) };
  }
}

function counted(devices: number, name: string): string {
  return `there ${devices === 1 ? "is" : "are"} ${devices} × ${name}`;
}

/** Reason why a build without the CUDA engine uses no GPU, with the remedy if one would work. */
function missingEngine(): string {
  const { gpus, problem } = probeDriver();
  if (problem !== null) return problem;
  const packaged =
    process.arch === "x64"
      ? "the package @bunting/linux-x64-cuda has one"
      : "`npm run build` where nvcc is installed makes an executable with one";
  const remedy = isExecutable ? packaged : "`npm run setup -- --cuda` builds one";
  return `${counted(gpus.length, gpus[0]!.name)}, but this build has no CUDA engine: ${remedy}`;
}

/** Backend on some GPUs; null: on all that the library finds. */
async function onGpus(
  kind: "cuda" | "emu",
  chosen: readonly number[] | null,
  reason: string,
): Promise<Backend> {
  const library = await libraryPath(kind);
  if (!existsSync(library)) {
    throw new ConfigError(
      kind === "cuda"
        ? `--device cuda: ${missingEngine()}.`
        : "--device emu: the emulated GPU is for development; it is built with the tests (npm test).",
    );
  }
  const gpus = chosen ?? Array.from({ length: probe(kind, library, 0).devices }, (_, gpu) => gpu);
  for (const gpu of gpus) probe(kind, library, gpu);
  return { kind, library, engines: gpus.length, gpus, reason };
}

/** Throws ConfigError with the reason if the GPU is unavailable. */
function probe(kind: "cuda" | "emu", library: string, gpu: number): Gpu {
  try {
    return openLibrary(library).deviceProbe(gpu);
  } catch (error) {
    if (error instanceof NativeError) throw new ConfigError(`--device ${kind}: ${error.message}.`);
    throw error;
  }
}
