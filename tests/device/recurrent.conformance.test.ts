/** Device conformance of the CPU engine with each kind of recurrent layer, states saved and begun from. */
import { afterAll, setDefaultTimeout } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { deviceConformance } from "../../gpu/conformance.ts";
import { closeNativeModel, openCpuDevice, openNativeModel } from "../../gpu/native/open.ts";
import { openModelFolder } from "../../model/folder.ts";
import { writeFamily } from "../reference/families.ts";
import { cpuLibrary } from "./library.ts";

setDefaultTimeout(60_000);

const library = cpuLibrary();
const scratch = mkdtempSync(join(tmpdir(), "bunting-recurrent-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const limits = {
  threads: 2,
  pages: 40,
  pageTokens: 16,
  stepTokensMax: 128,
  stepChunksMax: 32,
  stepHiddenMax: 96,
  topLogprobsMax: 5,
  states: 16,
};

for (const name of ["qwen3-next", "granite4-hybrid", "falcon-h1", "lfm2"]) {
  const path = join(scratch, name);
  writeFamily(name, path);
  const folder = openModelFolder(path);
  const options = { compute: "bf16", isa: "auto", threads: 1, contextMax: null } as const;
  const model = openNativeModel(library, folder, options, () => undefined);
  afterAll(() => closeNativeModel(library, model));
  deviceConformance(`cpu ${name}`, () => {
    const device = openCpuDevice(library, model, limits);
    const settle = (): void => {
      if (!device.inFlight) return;
      device.wait();
      device.deliver();
    };
    return { device, settle, logits: () => device.logits() };
  });
}
