/**
 * Prompt logprobs are equal to those of the same tokens when drawn, however the prompt is cut into chunks.
 */
import { afterAll, expect, test } from "bun:test";
import { join } from "node:path";
import type { TokenId } from "../../base/token.ts";
import { closeNativeModel, openCpuDevice, openNativeModel } from "../../gpu/native/open.ts";
import { openModelFolder } from "../../model/folder.ts";
import type { SequenceId, SequenceSpec, TokenLogprobs } from "../../scheduler/core.ts";
import { Engine } from "../../scheduler/engine/engine.ts";
import { sequenceSpec } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";
import { cpuLibrary } from "./library.ts";

const library = cpuLibrary();
const folder = openModelFolder(join(import.meta.dir, "../../models/demo"));
const options = { compute: "bf16", isa: "auto", threads: 2, contextMax: null } as const;
const model = openNativeModel(library, folder, options, () => undefined);
afterAll(() => closeNativeModel(library, model));

const TOP = 3;
const prompt = [100, 200, 300, 400, 500, 600];

/** Returns the tokens that a sequence drew, with their logprobs and those of its prompt. */
function run(spec: Omit<SequenceSpec, "id">, stepRowsMax: number) {
  const limits = { threads: 2, pages: 16, pageTokens: 16, stepTokensMax: 64, topLogprobsMax: TOP };
  const device = openCpuDevice(library, model, { ...limits, stepChunksMax: stepRowsMax });
  const tokens: TokenId[] = [];
  const drawn: TokenLogprobs[] = [];
  const ofPrompt: TokenLogprobs[] = [];
  let steps = 0;
  const engine = new Engine(device, new ManualClock(), {}, (report) => {
    steps = report.load.stepsTotal;
    tokens.push(...report.tokens);
    for (const one of report.logprobs ?? []) drawn.push(one!);
    for (const { start, logprobs } of report.prompts) {
      expect(start).toBe(1 + ofPrompt.length);
      ofPrompt.push(...logprobs);
    }
  });
  engine.receive({ kind: "submit", sequence: { ...spec, id: 0 as SequenceId } });
  for (engine.run(); device.inFlight; engine.run()) {
    device.wait();
    device.deliver();
  }
  device.close();
  return { tokens, drawn, ofPrompt, steps };
}

test("tokens are as likely in a prompt as they were when they were drawn", () => {
  const free = run(sequenceSpec(prompt, 40, { sampling: { topLogprobs: TOP } }), 64);
  expect(free.drawn).toHaveLength(40);
  const whole = sequenceSpec([...prompt, ...free.tokens], 1);
  for (const [rows, stepsLeast] of [
    [64, 1],
    [7, 7],
    [1, 46],
  ] as const) {
    const { ofPrompt, steps } = run({ ...whole, promptLogprobs: TOP }, rows);
    expect(ofPrompt.slice(prompt.length - 1)).toEqual(free.drawn);
    expect(steps).toBeGreaterThanOrEqual(stepsLeast);
  }
});
