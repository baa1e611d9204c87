/**
 * What the scheduler costs, in real time: see scheduler/*.ts for what each table shows. A step of a small model on a CPU
 * takes some 2000 µs.
 *
 *   bun benchmarks/scheduler.ts [--json]
 */

import { measureSteps, stepTable } from "./scheduler/steps.ts";

const steps = measureSteps();
if (process.argv.includes("--json")) console.log(JSON.stringify({ steps }));
else console.log(stepTable(steps));
