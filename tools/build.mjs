// `npm run build`: sets up missing parts, then builds the executable dist/bunting and the client sdk/dist.

import { rmSync } from "node:fs";
import { join } from "node:path";
import { bun, root, setUp } from "./setup.mjs";
import { runForeground } from "./start.mjs";

export async function main(args) {
  await setUp(["bunting_cpu"]);
  const code = await buildClient();
  return code !== 0 ? code : await runForeground(bun, [join(root, "tools", "build.ts"), ...args], root);
}

/** Builds the client for publication: modules and their types. Resolves to the exit code. */
export async function buildClient(outDir = join(root, "sdk", "dist")) {
  rmSync(outDir, { recursive: true, force: true });
  const compiler = join(root, "node_modules", "typescript", "bin", "tsc");
  return await runForeground(process.execPath, [compiler, "-p", join(root, "sdk"), "--outDir", outDir], root);
}
