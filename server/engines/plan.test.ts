import { expect, test } from "bun:test";
import { stepTokensMax } from "./plan.ts";

test("a step has room for everybody who runs, however few tokens prompts get", () => {
  expect(stepTokensMax({ stepTokens: 16, sequencesMax: 128 })).toBe(128);
  expect(stepTokensMax({ stepTokens: 256, sequencesMax: 128 })).toBe(256);
});
