/** The CUDA engine is a device like any other: its kernels, on the emulated GPU, with the whole engine around them. */
import { afterAll } from "bun:test";
import { deviceConformance } from "../../gpu/conformance.ts";
import { openModelFolder } from "../../gpu/model/folder.ts";
import { closeNativeModel, openGpuDevice, openNativeModel } from "../../gpu/native/open.ts";
import { referenceModel } from "../reference/models.ts";
import { emulatedLibrary } from "./library.ts";

const library = emulatedLibrary();
const limits = {
  threads: 1,
  pages: 40,
  pageTokens: 16,
  stepTokensMax: 128,
  stepChunksMax: 32,
  topLogprobsMax: 5,
};
const options = { compute: "bf16", isa: "auto", threads: 1, contextMax: null } as const;
const model = openNativeModel(
  library,
  openModelFolder(referenceModel("qwen2").dir),
  options,
  () => undefined,
);
afterAll(() => closeNativeModel(library, model));

deviceConformance("emulated GPU", () => {
  const device = openGpuDevice(library, model, limits, 0);
  const settle = (): void => {
    if (!device.inFlight) return;
    device.wait();
    device.deliver();
  };
  return { device, settle };
});
