/** Engine for this machine alone, as `npm start` builds it, beside the engine for all machines. */

import { afterAll, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { openLibrary } from "../../gpu/native.ts";
import { openModelFolder } from "../../model/folder.ts";
import type { Quant } from "../../model/formats.ts";
import { cpuLibrary, cpuLibraryPath } from "./library.ts";
import { Rig } from "./rig.ts";

const path = join(cpuLibraryPath(), "..", "here/libbunting_cpu.so");
const folder = openModelFolder(join(import.meta.dir, "../../models/demo"));
const tokens = Array.from({ length: 40 }, (_, index) => (index * 7) % 100);

function logits(library: ReturnType<typeof openLibrary>, quant: Quant): Float32Array[] {
  const rig = new Rig(library, folder, { quant });
  const rows = rig.logitsAfterEach(tokens);
  rig.close();
  return rows;
}

if (!existsSync(path)) afterAll(() => console.log(`Skipped: ${path} is not built; npm start builds it.`));

test.skipIf(!existsSync(path)).each(["none", "int8", "int4"] as const)(
  "computes the same bits with weights in %s",
  (quant) => expect(logits(openLibrary(path), quant)).toEqual(logits(cpuLibrary(), quant)),
);

test.skipIf(!existsSync(path))("has the best instruction set of this machine", () => {
  const here = openLibrary(path).machineProbe();
  const { isaBuilt, isaBest } = cpuLibrary().machineProbe();
  expect([isaBuilt, isaBest]).toContain(here.isaBuilt);
  expect(here.isaBest).toBe(isaBest);
});
