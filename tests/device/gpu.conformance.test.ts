/** Device conformance of the CUDA engine: on the emulated GPU, and on a real one if present. */
import { afterAll, setDefaultTimeout } from "bun:test";
import { deviceConformance } from "../../gpu/conformance.ts";
import { closeNativeModel, openGpuDevice, openNativeModel } from "../../gpu/native/open.ts";
import { openModelFolder } from "../../model/folder.ts";
import { referenceModel } from "../reference/models.ts";
import { gpuEngines } from "./library.ts";

setDefaultTimeout(60_000); // milliseconds, for an emulated GPU on a busy machine

const limits = {
  threads: 1,
  pages: 40,
  pageTokens: 16,
  stepTokensMax: 128,
  stepChunksMax: 32,
  stepHiddenMax: 96,
  topLogprobsMax: 5,
};
const options = { compute: "bf16", isa: "auto", threads: 1, contextMax: null } as const;

for (const { name, library } of gpuEngines()) {
  const folder = openModelFolder(referenceModel("qwen2").dir);
  const model = openNativeModel(library, folder, options, () => undefined);
  afterAll(() => closeNativeModel(library, model));

  deviceConformance(`gpu ${name}`, () => {
    const device = openGpuDevice(library, model, limits, 0, () => {});
    const settle = (): void => {
      if (!device.inFlight) return;
      device.wait();
      device.deliver();
    };
    return { device, settle, logits: () => device.logits() };
  });
}
