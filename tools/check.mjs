// `npm run check`: quick checks before a commit. Format, lint, types, rules of the tree, and tests that need
// no device.

import { nullTests, runGroups, staticChecks, summary } from "./groups.mjs";
import { CPU_HERE } from "./native.mjs";
import { setUp } from "./setup.mjs";

export async function main() {
  await setUp([CPU_HERE]);
  const total = await runGroups([...staticChecks(), nullTests()]);
  console.log(summary(total));
  return total.failed > 0 ? 1 : 0;
}
