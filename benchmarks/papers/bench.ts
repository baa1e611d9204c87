/** Settings of a run and sinks for its results; devices and numbers that claims share. */

import type { PartedCostModel } from "../../scheduler/cost/cost-model.ts";
import { openProfile, type ProfileName } from "../../scheduler/cost/profiles.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import type { SimulationReport } from "../../simulation/report.ts";
import type { Row } from "./table.ts";

export interface Bench {
  /** Folder of traces; null: workloads are drawn. */
  readonly traces: string | null;
  readonly seeds: readonly number[];
  /** True for fewer calls and rates. */
  readonly isQuick: boolean;
  row(row: Row): void;
  /** Prints a separate table. */
  table(title: string, head: readonly string[], lines: readonly (readonly string[])[]): void;
  /** Prints progress to the terminal. */
  note(line: string): void;
}

export interface DeviceModel {
  readonly profile: PartedCostModel;
  readonly spec: DeviceSpec;
}

/** Makes `count` devices of one kind. `overheadMs` is added to every step; `spec` overrides the capacity. */
export function devices(
  name: ProfileName,
  count: number,
  changes: { readonly overheadMs?: number; readonly spec?: Partial<DeviceSpec> } = {},
): DeviceModel[] {
  const { profile, spec } = openProfile(name, changes);
  return Array.from({ length: count }, () => ({ profile, spec }));
}

/** Throws unless every call was answered: refused calls would flatter the others. */
export function allAnswered(report: SimulationReport): SimulationReport {
  if (report.unanswered > 0)
    throw new Error(`${report.policy}: ${report.unanswered} calls were not answered.`);
  return report;
}

/** Formats milliseconds as seconds. */
export function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
}

export function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Divides element by element. */
export function ratios(above: readonly number[], below: readonly number[]): number[] {
  return above.map((value, index) => value / below[index]!);
}
