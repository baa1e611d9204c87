// `npm run build`: sets up missing parts, then builds the executable dist/bunting and the client sdk/dist. Where there is
// an nvcc, the executable gets the engine for GPUs too; BUNTING_CUDA_LIBRARY names a library that was built elsewhere.

import { rmSync } from "node:fs";
import { join } from "node:path";
import { findNvcc } from "./cuda-toolkit.mjs";
import { nativeBuild } from "./native.mjs";
import { bun, root, setUp } from "./setup.mjs";
import { runForeground } from "./start.mjs";

export async function main(args) {
  const isBuilt = (process.env.BUNTING_CUDA_LIBRARY ?? "") !== "";
  const buildsCuda = !isBuilt && findNvcc() !== null;
  await setUp(buildsCuda ? ["bunting_cpu", "bunting_cuda"] : ["bunting_cpu"]);
  if (buildsCuda) process.env.BUNTING_CUDA_LIBRARY = join(nativeBuild, "cuda", "libbunting_cuda.so");
  const code = await buildClient();
  return code !== 0 ? code : await runForeground(bun, [join(root, "tools", "build.ts"), ...args], root);
}

/** Builds the client for publication: modules and their types. Resolves to the exit code. */
export async function buildClient(outDir = join(root, "sdk", "dist")) {
  rmSync(outDir, { recursive: true, force: true });
  const compiler = join(root, "node_modules", "typescript", "bin", "tsc");
  return await runForeground(process.execPath, [compiler, "-p", join(root, "sdk"), "--outDir", outDir], root);
}
