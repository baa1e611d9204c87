/**
 * What the scheduler costs, in real time: see scheduler/*.ts for what each table shows. A step of a small model on a CPU
 * takes some 2000 µs.
 *
 *   bun benchmarks/scheduler.ts [--json]
 */

import { measurePlacements, placementTable } from "./scheduler/placement.ts";
import { measureSimulation, simulationTable } from "./scheduler/simulation.ts";
import { measureSteps, stepTable } from "./scheduler/steps.ts";

const steps = measureSteps();
const placements = measurePlacements();
const simulation = measureSimulation();
if (process.argv.includes("--json")) console.log(JSON.stringify({ steps, placements, simulation }));
else {
  console.log(stepTable(steps));
  console.log(`\n${placementTable(placements)}`);
  console.log(`\n${simulationTable(simulation)}`);
}
