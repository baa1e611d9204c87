// `npm test`: sets up, builds, and runs every check and test. The last line is the total.

import {
  armTests,
  cudaDriverTests,
  deviceTests,
  emulatorTests,
  endToEndTests,
  instructionCheck,
  nativeTests,
  nullTests,
  registerCheck,
  runGroups,
  sanitizedEmulatorTests,
  sanitizedTests,
  staticChecks,
  summary,
} from "./groups.mjs";
import { buildNative, CPU_HERE } from "./native.mjs";
import { setUp } from "./setup.mjs";

export async function main() {
  await setUp();
  await buildNative([CPU_HERE]);
  const total = await runGroups([
    ...staticChecks(),
    nativeTests(),
    ...armTests(),
    emulatorTests(),
    cudaDriverTests(),
    registerCheck(),
    instructionCheck(),
    ...sanitizedTests(),
    ...sanitizedEmulatorTests(),
    nullTests(),
    deviceTests(),
    endToEndTests(),
  ]);
  console.log("What needs a GPU is not among these: benchmarks/gpu.sh.");
  console.log(summary(total));
  return total.failed > 0 ? 1 : 0;
}
