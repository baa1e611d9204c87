/**
 * Engine libraries as `npm test` builds them; BUNTING_LIBRARY and BUNTING_EMULATED_LIBRARY override the
 * paths.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { NativeError, type NativeLibrary, openLibrary } from "../../gpu/native.ts";

const build = join(import.meta.dir, "../../build/native");

export function cpuLibrary(): NativeLibrary {
  return openLibrary(cpuLibraryPath());
}

export function cpuLibraryPath(): string {
  return present(process.env.BUNTING_LIBRARY ?? join(build, "libbunting_cpu.so"));
}

/** Opens the CUDA engine on the emulated GPU. */
export function emulatedLibrary(): NativeLibrary {
  return openLibrary(emulatedLibraryPath());
}

export function emulatedLibraryPath(): string {
  return present(process.env.BUNTING_EMULATED_LIBRARY ?? join(build, "cuda/libbunting_emu.so"));
}

/** Path of the CUDA engine, if it is built. */
export const cudaLibraryPath = join(build, "cuda/libbunting_cuda.so");

/** Engine that computes on a GPU. */
export interface GpuEngine {
  readonly name: "emu" | "cuda";
  readonly library: NativeLibrary;
}

/** Returns the emulated GPU, and the real one if present with its engine built. */
export function gpuEngines(): readonly GpuEngine[] {
  const emulated: GpuEngine = { name: "emu", library: emulatedLibrary() };
  if (!existsSync(cudaLibraryPath)) return [emulated];
  const library = openLibrary(cudaLibraryPath);
  return gpuRefusal(library, 0) === null ? [emulated, { name: "cuda", library }] : [emulated];
}

/** Returns why the library cannot compute on that GPU; null if it can. */
export function gpuRefusal(library: NativeLibrary, gpu: number): string | null {
  try {
    library.deviceProbe(gpu);
    return null;
  } catch (error) {
    if (error instanceof NativeError && error.status === "invalid") return error.message;
    throw error;
  }
}

function present(path: string): string {
  if (!existsSync(path)) throw new Error(`${path} does not exist: "npm test" builds it`);
  return path;
}
