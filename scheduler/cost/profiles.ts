import type { DeviceSpec } from "../device.ts";
import { ProfileCostModel, type ProfileTable } from "./profile.ts";
import a100 from "./profiles/a100-mistral-7b.json" with { type: "json" };
import a6000 from "./profiles/a6000-llama-8b.json" with { type: "json" };
import rtx4090 from "./profiles/rtx4090-llama-8b.json" with { type: "json" };

/** Profiles by device name. */
const tables = { a100, a6000, rtx4090 } satisfies Readonly<Record<string, ProfileTable>>;

/** Name of a measured device. */
export type ProfileName = keyof typeof tables;

/** All profile names. */
export const profileNames = Object.keys(tables) as readonly ProfileName[];

/** Measured device: cost model and capacity. */
export interface MeasuredDevice {
  readonly profile: ProfileCostModel;
  readonly spec: DeviceSpec;
  readonly table: ProfileTable;
}

/** Opens a measured device. `overheadMs` is added to every step; `spec` overrides its capacity. */
export function openProfile(
  name: ProfileName,
  changes: { readonly overheadMs?: number; readonly spec?: Partial<DeviceSpec> } = {},
): MeasuredDevice {
  const table: ProfileTable = tables[name];
  const spec: DeviceSpec = {
    name: table.name,
    pages: table.pages,
    pageTokens: table.pageTokens,
    stepTokensMax: 65_536,
    stepChunksMax: 1024,
    contextMax: table.contextMax,
    vocabSize: 128_256,
    ...changes.spec,
  };
  return { profile: new ProfileCostModel(table, changes.overheadMs), spec, table };
}

/** All measured devices without changes. */
export const deviceModels: Readonly<Record<ProfileName, MeasuredDevice>> = {
  a100: openProfile("a100"),
  a6000: openProfile("a6000"),
  rtx4090: openProfile("rtx4090"),
};
