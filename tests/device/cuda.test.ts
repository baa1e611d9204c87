/** The CUDA engine's library, where it is built: it loads on any machine, and says why it cannot compute there. */
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { NativeError, openLibrary } from "../../gpu/native.ts";

const path = join(import.meta.dir, "../../build/native/cuda/libbunting_cuda.so");

/** The sentence of the library; null where it finds a GPU. */
function refusal(gpu: number): string | null {
  try {
    openLibrary(path).deviceProbe(gpu);
    return null;
  } catch (error) {
    if (error instanceof NativeError && error.status === "invalid") return error.message;
    throw error;
  }
}

test.skipIf(!existsSync(path))("without a driver, or with an old one, it loads and says so", () => {
  const said = refusal(0);
  if (said === null) return expect(refusal(1000)).toStartWith("there is no GPU 1000: this machine has ");
  expect(said).toMatch(
    /^(there is no NVIDIA driver on this machine|the NVIDIA driver is too old: it speaks CUDA [\d.]+, and this library needs [\d.]+|the NVIDIA driver finds no GPU: .+|GPU 0 has compute capability .+)$/,
  );
});
