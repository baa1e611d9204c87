import { expect, test } from "bun:test";
import { checkHost, chooseSequences } from "./plan.ts";

const mib = 2 ** 20;
/** Workspace bytes of 2,048 step tokens and of each sequence. */
const workspaceBytes = (sequences: number): number => 50 * mib + sequences * mib;

test("as many sequences run as a step has tokens, as long as their rows are a small part of the memory", () => {
  const chosen = (stepTokens: number, freeBytes: number, sequencesMax = 0): number =>
    chooseSequences({ stepTokens, sequencesMax }, workspaceBytes, freeBytes);
  expect([2 ** 20, 65_536, 32_768, 8192, 0].map((freeMib) => chosen(2048, freeMib * mib))).toEqual([
    2048, 2048, 1024, 256, 1,
  ]);
  expect(chosen(64, 2 ** 20 * mib)).toBe(64);
});

test("what is asked for is what there is, but for what a step has room for", () => {
  const asked = (sequencesMax: number): number =>
    chooseSequences({ stepTokens: 100, sequencesMax }, workspaceBytes, 0);
  expect([asked(1), asked(100), asked(300)]).toEqual([1, 100, 100]);
});

test("a machine has memory for the pieces of a model on their way to its GPUs, not for the model", () => {
  const machine = { memoryFreeBytes: 300 * mib };
  expect(() => checkHost(300 * mib, machine)).not.toThrow();
  expect(() => checkHost(301 * mib, machine)).toThrow(
    "On their way to the GPU the weights take 301 MiB of the machine's memory, and 300 MiB are free.",
  );
});
