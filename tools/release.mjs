// `npm run release -- [platform ...]`: builds the packages of packaging/README.md into dist/release.

import { join } from "node:path";
import { bun, installPackages, root } from "./setup.mjs";
import { runForeground } from "./start.mjs";

export async function main(args) {
  await installPackages();
  return await runForeground(bun, [join(root, "tools", "release.ts"), ...args], root);
}
