/** Device conformance of the CPU engine, at every instruction set of this machine. */
import { afterAll, describe } from "bun:test";
import { deviceConformance } from "../../gpu/conformance.ts";
import { closeNativeModel, openCpuDevice, openNativeModel } from "../../gpu/native/open.ts";
import { isaNames } from "../../gpu/native.ts";
import { openModelFolder } from "../../model/folder.ts";
import { referenceModel } from "../reference/models.ts";
import { cpuLibrary } from "./library.ts";

const library = cpuLibrary();
const { isaBest, isaBuilt } = library.machineProbe();
const levels = isaNames.slice(0, Math.min(isaNames.indexOf(isaBest), isaNames.indexOf(isaBuilt)) + 1);
const folder = openModelFolder(referenceModel("qwen3").dir);
const limits = {
  threads: 2,
  pages: 40,
  pageTokens: 16,
  stepTokensMax: 128,
  stepChunksMax: 32,
  stepHiddenMax: 96,
  topLogprobsMax: 5,
};

for (const isa of levels) {
  for (const compute of ["bf16", "f32"] as const) {
    describe(isa, () => {
      const options = { compute, isa, threads: 1, contextMax: null };
      const model = openNativeModel(library, folder, options, () => undefined);
      afterAll(() => closeNativeModel(library, model));
      deviceConformance(`cpu ${isa} ${compute}`, () => {
        const device = openCpuDevice(library, model, limits);
        const settle = (): void => {
          if (!device.inFlight) return;
          device.wait();
          device.deliver();
        };
        return { device, settle, logits: () => device.logits() };
      });
    });
  }
}
