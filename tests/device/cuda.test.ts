/**
 * Library of the CUDA engine, if built: it loads on any machine, and returns the reason if it cannot compute
 * there.
 */
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { openLibrary } from "../../gpu/native.ts";
import { cudaLibraryPath, gpuRefusal } from "./library.ts";

test.skipIf(!existsSync(cudaLibraryPath))(
  "without a driver, or with an old one, it loads and says so",
  () => {
    const library = openLibrary(cudaLibraryPath);
    const said = gpuRefusal(library, 0);
    if (said === null) {
      expect(gpuRefusal(library, 1000)).toStartWith("there is no GPU 1000: this machine has ");
      return;
    }
    expect(said).toMatch(
      /^(there is no NVIDIA driver on this machine|the NVIDIA driver is too old: it speaks CUDA [\d.]+, and this library needs [\d.]+|the NVIDIA driver finds no GPU: .+|GPU 0 has compute capability .+)$/,
    );
  },
);
