/** Embedding models: their pooling, and folders without a vocabulary projection. */
import { afterAll, describe, expect, test } from "bun:test";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { referenceModel } from "../tests/reference/models.ts";
import { renameTensors } from "../tests/support/headless-folder.ts";
import { parseModelConfig } from "./config.ts";
import { openModelFolder } from "./folder.ts";
import type { GgufValue } from "./gguf-file.ts";
import { Metadata } from "./gguf-metadata.ts";
import { ModelError } from "./model-error.ts";
import { folderEmbedding, ggufEmbedding } from "./pooling.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-pooling-"));
afterAll(() => rmSync(scratch, { recursive: true }));

/** Creates a folder with these files of sentence-transformers. */
function folderOf(pooling: object | null, modules: unknown = null): string {
  const dir = mkdtempSync(join(scratch, "f-"));
  if (pooling !== null) {
    mkdirSync(join(dir, "1_Pooling"));
    writeFileSync(join(dir, "1_Pooling", "config.json"), JSON.stringify(pooling));
  }
  if (modules !== null) writeFileSync(join(dir, "modules.json"), JSON.stringify(modules));
  return dir;
}

const flags = { word_embedding_dimension: 48, pooling_mode_cls_token: false, pooling_mode_max_tokens: false };
const step = (name: string) => ({
  idx: 0,
  name: "0",
  path: "",
  type: `sentence_transformers.models.${name}`,
});

describe("a folder's pooling", () => {
  test.each([
    ["nothing said", null, { pooling: "last" }],
    ["last token", { ...flags, pooling_mode_lasttoken: true }, { pooling: "last" }],
    ["mean", { ...flags, pooling_mode_mean_tokens: true }, { pooling: "mean" }],
    ["CLS", { ...flags, pooling_mode_cls_token: true }, { pooling: "first" }],
    [
      "two",
      { ...flags, pooling_mode_cls_token: true, pooling_mode_mean_tokens: true },
      { refusal: expect.stringContaining("wants pooling_mode_cls_token and pooling_mode_mean_tokens") },
    ],
    ["none", flags, { refusal: expect.stringContaining("wants no pooling; one of pooling_mode_lasttoken") }],
    [
      "another",
      { ...flags, pooling_mode_max_tokens: true },
      { refusal: expect.stringContaining("wants pooling_mode_max_tokens") },
    ],
  ])("%s", (_, pooling, rule) => {
    expect(folderEmbedding(folderOf(pooling))).toEqual(rule as never);
  });

  test("steps behind it that are not computed are refused by name", () => {
    const usual = ["Transformer", "Pooling", "Normalize"].map(step);
    expect(folderEmbedding(folderOf(null, usual))).toEqual({ pooling: "last" });
    expect(folderEmbedding(folderOf(null, [...usual, step("LSTM")]))).toEqual({
      refusal: "modules.json wants sentence_transformers.models.LSTM, which is not computed here",
    });
    expect(() => folderEmbedding(folderOf(null, { a: 1 }))).toThrow(ModelError);
  });
});

test("a pooling without the prompt is refused where the model has prompts, but of the last token", () => {
  const ruleOf = (pooling: object, prompts: object): object => {
    const dir = folderOf({ ...flags, include_prompt: false, ...pooling });
    writeFileSync(join(dir, "config_sentence_transformers.json"), JSON.stringify({ prompts }));
    return folderEmbedding(dir);
  };
  const mean = { pooling_mode_mean_tokens: true };
  const prompts = { query: "query: " };
  expect(ruleOf(mean, prompts)).toEqual({ refusal: expect.stringContaining("(include_prompt)") });
  expect(ruleOf(mean, { query: "" })).toEqual({ pooling: "mean" });
  expect(ruleOf({ pooling_mode_cls_token: true }, prompts)).toEqual(ruleOf(mean, prompts));
  const last = { pooling_mode_lasttoken: true };
  expect(ruleOf(last, prompts)).toEqual({ pooling: "last", prompts: { byName: prompts, usual: null } });
});

test("a GGUF file's pooling is llama.cpp's number", () => {
  const ruleOf = (type: number | null) => {
    const metadata = new Map<string, GgufValue>([
      ["general.architecture", { type: "string", value: "qwen3" }],
    ]);
    if (type !== null) metadata.set("qwen3.pooling_type", { type: "u32", value: type });
    return ggufEmbedding(new Metadata({ file: "a.gguf", metadata }));
  };
  expect([null, 0, 1, 2, 3].map(ruleOf)).toEqual(
    (["last", "last", "mean", "first", "last"] as const).map((pooling) => ({ pooling })),
  );
  expect(ruleOf(4)).toEqual({ refusal: "its file is for scores alone (/v1/rerank)" });
});

describe("a model without a vocabulary projection", () => {
  const config = JSON.parse(readFileSync(join(referenceModel("qwen3").dir, "config.json"), "utf8"));
  const parse = (changes: object) =>
    parseModelConfig({ file: "config.json", json: { ...config, ...changes } }, { file: "", json: {} });

  test("is one by its class", () => {
    const { isHeadless, family, shape } = parse({ architectures: ["Qwen3Model"] });
    expect([isHeadless, family, shape.tiedEmbeddings]).toEqual([true, "qwen3", true]);
    expect(parse({}).isHeadless).toBeUndefined();
  });

  test("must see the tokens before each, and no others", () => {
    for (const changes of [{ use_bidirectional_attention: true }, { is_causal: false }]) {
      expect(() => parse({ architectures: ["Qwen3Model"], ...changes })).toThrow("are not supported");
    }
  });

  test("is one by the names of its tensors, whatever its class", () => {
    for (const architectures of [["Qwen3Model"], ["Qwen3ForCausalLM"]]) {
      const dir = mkdtempSync(join(scratch, "m-"));
      cpSync(referenceModel("qwen3").dir, dir, { recursive: true });
      writeFileSync(join(dir, "config.json"), JSON.stringify({ ...config, architectures }));
      renameTensors(dir);
      const folder = openModelFolder(dir);
      expect([folder.config.isHeadless, folder.embedding]).toEqual([true, { pooling: "last" }]);
      const names = folder.tensors.map(({ name }) => name);
      expect([names[0], names[1], names.at(-1)]).toEqual([
        "embed_tokens.weight",
        "layers.0.input_layernorm.weight",
        "norm.weight",
      ]);
    }
  });
});
