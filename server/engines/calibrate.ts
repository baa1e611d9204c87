import type { HostedDevice } from "../../gpu/hosted-device.ts";
import { greedySampling, type PageId, type SequenceId, type Step } from "../../scheduler/core.ts";
import { type LinearCost, linearCost } from "../../scheduler/cost/linear.ts";

/** Rows that the kernels compute together. */
const TILE_TOKENS = 16;
const PROMPT_TOKENS = 32;

/**
 * What steps cost on a device that has nothing to do yet: it is given a step of one token, which also warms it up, the
 * same again, and one of a short prompt. Coarse, but of the right size from the first request on; the steps that follow
 * correct it (scheduler/cost/online.ts). What they leave in the pages is nobody's and is never read. Throws when the device
 * cannot compute.
 */
export function calibrate(device: HostedDevice): LinearCost {
  const { spec } = device;
  const tokens = Math.min(PROMPT_TOKENS, spec.stepTokensMax, spec.contextMax, spec.pages * spec.pageTokens);
  timeStep(device, 1);
  const oneMs = timeStep(device, 1);
  const promptMs = timeStep(device, tokens);
  const tokenMs = Math.max(1e-3, (promptMs - oneMs) / Math.max(1, tokens - 1));
  return linearCost(Math.max(1e-3, oneMs - tokenMs), tokenMs, TILE_TOKENS);
}

/** Milliseconds of a step that computes a prompt of `count` tokens and draws one. */
function timeStep(device: HostedDevice, count: number): number {
  const pages = Int32Array.from({ length: Math.ceil(count / device.spec.pageTokens) }, (_, i) => i as PageId);
  const step: Step = {
    number: 0,
    copies: [],
    chunks: [
      {
        sequence: 0 as SequenceId,
        start: 0,
        tokens: new Int32Array(count),
        pages,
        sample: { sampling: greedySampling, position: 0, banned: [], seen: null, allowed: null },
      },
    ],
  };
  const startMs = performance.now();
  device.start(step, (result) => {
    if (result.kind !== "done") throw new Error(`its first step failed: ${result.reason}`);
  });
  device.wait();
  device.deliver();
  return performance.now() - startMs;
}
