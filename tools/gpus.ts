/** Prints the GPUs of this machine as JSON, a DriverReport; for the set-up, which runs without Bun's modules. */

import { probeDriver } from "../gpu/cuda-driver.ts";

console.log(JSON.stringify(probeDriver()));
