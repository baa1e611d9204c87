import { expect, test } from "bun:test";
import { servedDemo } from "../../../tests/support/served-model.ts";
import { parseOllamaChat } from "../ollama/schema.ts";
import { noTargets } from "../targets.ts";
import { parseChatRequest } from "./schema.ts";

const model = servedDemo({ tokensOf: () => [1] });
const messages = [{ role: "user", content: "Hi" }];
const parse = (more: object) => parseChatRequest({ messages, ...more }, model);

/** Fields that clients of llama-server send even if nobody changed them. */
const untouched = {
  ...{
    mirostat: 0,
    mirostat_tau: 5,
    mirostat_eta: 0.1,
    typical_p: 1,
    tfs_z: 1,
    top_n_sigma: -1,
    min_keep: 0,
  },
  ...{ dynatemp_range: 0, dynatemp_exponent: 1, xtc_probability: 0, xtc_threshold: 0.1, repeat_last_n: 64 },
  ...{ dry_multiplier: 0, dry_base: 1.75, dry_allowed_length: 2, dry_penalty_last_n: -1 },
  ...{ samplers: "edkypmxt", repeat_penalty: 1.1, cache_prompt: true },
};

test("samplers that are off draw as ours do, and settings of theirs are named", () => {
  const { generation, ignored } = parse(untouched);
  expect(generation.sampling.repetitionPenalty).toBe(1.1);
  const settings = ["mirostat_tau", "mirostat_eta", "dynatemp_exponent", "xtc_threshold", "repeat_last_n"];
  const dry = ["dry_base", "dry_allowed_length", "dry_penalty_last_n"];
  expect([...ignored].sort()).toEqual([...settings, ...dry, "cache_prompt"].sort());
  const asList = {
    samplers: ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"],
  };
  expect(parse(asList).ignored).toEqual([]);
});

test.each([
  [{ mirostat: 2 }, "mirostat"],
  [{ typical_p: 0.9 }, "typical_p"],
  [{ dry_multiplier: 0.8 }, "dry_multiplier"],
  [{ xtc_probability: 0.5 }, "xtc_probability"],
  [{ dynatemp_range: 0.5 }, "dynatemp_range"],
  [{ top_n_sigma: 1 }, "top_n_sigma"],
  [{ tfs_z: 0.9 }, "tfs_z"],
  [{ samplers: ["temperature", "top_k"] }, "samplers"],
  [{ samplers: "tkpm" }, "samplers"],
  [{ samplers: 5 }, "samplers"],
  [{ repeat_last_n: 32, repeat_penalty: 1.1 }, "repeat_last_n"],
  [{ repeat_last_n: 0, presence_penalty: 1 }, "repeat_last_n"],
] as const)("%j would change the draw, and is refused by its name", (more, param) => {
  expect(() => parse(more)).toThrow(`${param}: `);
  const ollama = { model: "demo", messages, options: more };
  expect(() => parseOllamaChat(ollama, { model, template: null }, noTargets)).toThrow(`options.${param}: `);
});

test("a penalty that looks back at all of the text is ours", () => {
  expect(parse({ repeat_last_n: -1, repeat_penalty: 1.1 }).generation.sampling.repetitionPenalty).toBe(1.1);
});
