/** The CPU engine's library as `npm test` builds it; BUNTING_LIBRARY names another. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { type NativeLibrary, openLibrary } from "../../gpu/native.ts";

export function cpuLibrary(): NativeLibrary {
  return openLibrary(cpuLibraryPath());
}

export function cpuLibraryPath(): string {
  const path = process.env.BUNTING_LIBRARY ?? join(import.meta.dir, "../../build/native/libbunting_cpu.so");
  if (!existsSync(path)) throw new Error(`${path} does not exist: "npm run setup" builds it`);
  return path;
}
