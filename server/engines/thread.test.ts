import { expect, test } from "bun:test";
import type { EngineId } from "../../scheduler/core.ts";
import type { EngineSetup } from "./protocol.ts";
import { EngineThread } from "./thread.ts";

/** Starts that never end. */

const silentUrl = URL.createObjectURL(new Blob(["self.onmessage = () => {};"]));
const gpu = { kind: "gpu", gpus: [3, 7], gpuNames: ["a", "b"] };

test.each<[string, object, string]>([
  ["a GPU", gpu, "GPU 7 has not started: nothing was heard of it for 0.02 s"],
  ["a CPU", { kind: "cpu" }, "the engine has not started: nothing was heard of it for 0.02 s"],
])("a start on %s that says nothing fails and names its device", async (_, device, reason) => {
  const setup = { device } as unknown as EngineSetup;
  const start = { engine: 1 as EngineId, epoch: 0, setup, model: null, costs: null };
  const thread = new EngineThread(silentUrl, start, Promise.resolve(null), () => {}, 20);
  await expect(thread.ready).rejects.toThrow(reason);
  await thread.stop(); // does not wait for the thread
});
