// `npm run check`: what to run before a commit. Format, lint, types, tidiness, and the tests that need no device.

import { nullTests, runGroups, staticChecks, summary } from "./groups.mjs";
import { setUp } from "./setup.mjs";

export async function main() {
  await setUp(["bunting_cpu"]);
  const total = await runGroups([...staticChecks(), nullTests()]);
  console.log(summary(total));
  return total.failed > 0 ? 1 : 0;
}
