import type { DeviceSpec } from "../device.ts";
import { ProfileCostModel, type ProfileTable } from "./profile.ts";
import a100 from "./profiles/a100-mistral-7b.json" with { type: "json" };
import a6000 from "./profiles/a6000-llama-8b.json" with { type: "json" };
import rtx4090 from "./profiles/rtx4090-llama-8b.json" with { type: "json" };

/** By the device's name. */
const tables = { a100, a6000, rtx4090 } satisfies Readonly<Record<string, ProfileTable>>;

/** A device that was measured. */
export type ProfileName = keyof typeof tables;

/** All that there are. */
export const profileNames = Object.keys(tables) as readonly ProfileName[];

/** A measured device: what its steps take, and what it holds. */
export interface MeasuredDevice {
  readonly profile: ProfileCostModel;
  readonly spec: DeviceSpec;
  readonly table: ProfileTable;
}

/** Opens a device as it was measured, or changed: `overheadMs` is added to every step, `spec`
 *  replaces what the device holds. */
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

/** All of them as they were measured. */
export const deviceModels: Readonly<Record<ProfileName, MeasuredDevice>> = {
  a100: openProfile("a100"),
  a6000: openProfile("a6000"),
  rtx4090: openProfile("rtx4090"),
};
