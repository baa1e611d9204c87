// `npm run build`: sets up what is missing, then makes the one executable, dist/bunting.

import { join } from "node:path";
import { bun, root, setUp } from "./setup.mjs";
import { runForeground } from "./start.mjs";

export async function main(args) {
  await setUp(["bunting_cpu"]);
  return await runForeground(bun, [join(root, "tools", "build.ts"), ...args], root);
}
