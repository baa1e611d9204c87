/**
 * Cost of the scheduler in real time; scheduler/*.ts describes each table. A step of a small model on a CPU
 * takes some 2000 µs.
 *
 *   bun benchmarks/scheduler.ts [--only steps|placements|simulation|programs] [--json]
 */

import { parseArgs } from "node:util";
import { measurePlacements, placementTable } from "./scheduler/placement.ts";
import { measurePrograms, programTable } from "./scheduler/programs.ts";
import { measureSimulation, simulationTable } from "./scheduler/simulation.ts";
import { measureSteps, stepTable } from "./scheduler/steps.ts";

interface Part {
  readonly rows: unknown;
  readonly table: string;
}

const parts: Readonly<Record<string, () => Part>> = {
  steps: () => {
    const rows = measureSteps();
    return { rows, table: stepTable(rows) };
  },
  placements: () => {
    const rows = measurePlacements();
    return { rows, table: placementTable(rows) };
  },
  simulation: () => {
    const rows = measureSimulation();
    return { rows, table: simulationTable(rows) };
  },
  programs: () => {
    const rows = measurePrograms();
    return { rows, table: programTable(rows) };
  },
};

const { values } = parseArgs({ options: { only: { type: "string" }, json: { type: "boolean" } } });
const names = values.only === undefined ? Object.keys(parts) : [values.only];
const measured: Record<string, unknown> = {};
for (const name of names) {
  const measure = parts[name];
  if (measure === undefined)
    throw new Error(`There is no part ${name}; there are ${Object.keys(parts).join(", ")}.`);
  const { rows, table } = measure();
  measured[name] = rows;
  if (!values.json) console.log(`${table}\n`);
}
if (values.json) console.log(JSON.stringify(measured));
