/** The CUDA engine on the emulated GPU, as `npm test` builds it; BUNTING_EMULATED_LIBRARY names another. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { type NativeLibrary, openLibrary } from "../../gpu/native.ts";

export function emulatedLibrary(): NativeLibrary {
  const path =
    process.env.BUNTING_EMULATED_LIBRARY ??
    join(import.meta.dir, "../../build/native/cuda/libbunting_emu.so");
  if (!existsSync(path)) throw new Error(`${path} does not exist: "npm run setup" builds it`);
  return openLibrary(path);
}
