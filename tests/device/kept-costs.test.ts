/**
 * Initial costs of an engine on the CPU: those kept by an earlier start or measured by the first engine, else its
 * own estimate.
 */

import { afterAll, expect, test } from "bun:test";
import {
  copyFileSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EngineId } from "../../scheduler/core.ts";
import { type LinearCost, type LinearState, linearCost } from "../../scheduler/cost/linear.ts";
import { demoModelFolder } from "../../server/assets.ts";
import { LoopClock } from "../../server/engines/loop-clock.ts";
import { openDevice, type Shared } from "../../server/engines/open-device.ts";
import type { DeviceSetup } from "../../server/engines/protocol.ts";
import { cpuLibraryPath } from "./library.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-kept-costs-"));
afterAll(() => rmSync(scratch, { recursive: true }));
const library = join(scratch, "libbunting_cpu.so");
copyFileSync(cpuLibraryPath(), library);
const folder = await demoModelFolder();

function setupOf(packedFolders: readonly string[]): DeviceSetup {
  const model = { compute: "bf16", isa: "auto", threads: 2, contextMax: 1024, packedFolders } as const;
  const limits = {
    threads: 2,
    pages: 64,
    pageTokens: 16,
    stepTokensMax: 256,
    stepChunksMax: 16,
    topLogprobsMax: 0,
  };
  return { kind: "cpu", library, folder, model, limits };
}

/** Returns the initial costs of an engine, which learns `learnt` if it is there. */
function begun(
  packed: string | null,
  costs: Shared["costs"] = null,
  engine = 0,
  learnt: LinearCost | null = null,
): LinearState {
  const setup = setupOf(packed === null ? [] : [packed]);
  const opened = openDevice(setup, engine as EngineId, { model: null, costs }, new LoopClock(), () => {});
  if (learnt !== null) opened.keepCosts(learnt);
  opened.device.close();
  opened.closeModel();
  return opened.costs.state;
}

const keptIn = (packed: string): string[] =>
  readdirSync(packed).filter((name) => name.includes(".bunting-costs"));
const textIn = (packed: string): string => readFileSync(join(packed, keptIn(packed)[0]!), "utf8");
const partsIn = (packed: string): LinearState => JSON.parse(textIn(packed)).costs;

/** Returns the parts relative to each other. */
function shares({ stepMs, tokenMs, sequences, first }: LinearState): number[] {
  const { sequenceMs, pairMs, contextMs } = sequences;
  const firstMs = first.map(({ tokenMs }) => tokenMs);
  return [tokenMs, sequenceMs, pairMs, contextMs, ...firstMs].map((ms) => ms / stepMs);
}

const folderFor = (): string => mkdtempSync(join(scratch, "packed-"));

test("the first start keeps what it measured, and the second begins with what is kept, at its own speed", () => {
  const packed = folderFor();
  const first = begun(packed);
  expect(keptIn(packed)).toHaveLength(1);
  expect(partsIn(packed)).toEqual(first);
  const second = begun(packed);
  for (const [index, share] of shares(partsIn(packed)).entries())
    expect(shares(second)[index]).toBeCloseTo(share, 9);
  expect(keptIn(packed)).toHaveLength(1);
});

test("the next start begins with what the steps taught", () => {
  const packed = folderFor();
  const taught = linearCost(1, 2, 16, { sequenceMs: 3, pairMs: 4, contextMs: 5 });
  begun(packed, null, 0, taught);
  for (const [index, share] of shares(begun(packed)).entries())
    expect(share).toBeCloseTo(shares(taught.state)[index]!, 9);
});

test("costs may be kept where weights are not", () => {
  const costsFolder = folderFor();
  const setup = setupOf([]);
  if (setup.kind !== "cpu") throw new Error("a CPU was set up");
  const model = { ...setup.model, costsFolders: [costsFolder] };
  const opened = openDevice(
    { ...setup, model },
    0 as EngineId,
    { model: null, costs: null },
    new LoopClock(),
    () => {},
  );
  opened.device.close();
  opened.closeModel();
  expect(readdirSync(costsFolder)).toEqual(keptIn(costsFolder));
  expect(keptIn(costsFolder)).toHaveLength(1);
});

test("a damaged file, and one of another library, are replaced", () => {
  const packed = folderFor();
  begun(packed);
  const path = join(packed, keptIn(packed)[0]!);
  for (const damaged of ["", "{", textIn(packed).replace(/"tokenMs":[\d.]+/, '"tokenMs":1')]) {
    writeFileSync(path, damaged);
    const costs = begun(packed);
    expect(partsIn(packed)).toEqual(costs);
    expect(textIn(packed)).not.toBe(damaged);
  }
  const before = textIn(packed);
  utimesSync(library, 1, 1);
  const costs = begun(packed);
  expect(textIn(packed)).not.toBe(before);
  expect(partsIn(packed)).toEqual(costs);
});

test("other engines of its kind begin with what the first one measured", () => {
  const packed = folderFor();
  const costs = linearCost(1, 2, 16, { sequenceMs: 3, pairMs: 4, contextMs: 5 }, [
    { tokens: 8, tokenMs: 6 },
  ]).state;
  expect(begun(packed, costs, 1)).toEqual(costs);
  expect(keptIn(packed)).toEqual([]);
});

test("without a place for packed weights nothing is kept", () => {
  expect(begun(null).stepMs).toBeGreaterThan(0);
});
