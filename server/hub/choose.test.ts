import { expect, test } from "bun:test";
import { chooseGguf, descriptionsOf, quantOf, weightsOf } from "./choose.ts";
import { HubError } from "./hub-error.ts";
import { ollamaModel, ollamaNames } from "./ollama-names.ts";
import { unknownName } from "./resolve.ts";

const sized = (paths: readonly string[]) => paths.map((path) => ({ path, bytes: 1024 }));
const chosen = (paths: readonly string[], variant: string | null): readonly string[] | string => {
  try {
    return chooseGguf("a/b", sized(paths), variant).map(({ path }) => path);
  } catch (error) {
    if (error instanceof HubError) return error.message;
    throw error;
  }
};

const many = [
  "m-Q4_K_M.gguf",
  "m-UD-Q4_K_M.gguf",
  "m-Q4_K_S.gguf",
  "mmproj-F16.gguf",
  "BF16/m-BF16-00002-of-00002.gguf",
  "BF16/m-BF16-00001-of-00002.gguf",
];
const parts = ["BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf"];

test.each<[string | null, readonly string[]]>([
  ["Q4_K_M", ["m-Q4_K_M.gguf"]],
  ["q4_k_m", ["m-Q4_K_M.gguf"]],
  ["UD-Q4_K_M", ["m-UD-Q4_K_M.gguf"]],
  ["BF16", parts],
  ["BF16/m-BF16-00001-of-00002.gguf", parts],
  ["m-Q4_K_S.gguf", ["m-Q4_K_S.gguf"]],
])("%s is one model with all its parts", (variant, files) => {
  expect(chosen(many, variant)).toEqual(files);
});

test("a repository with one model needs no quant, and a projector is none", () => {
  expect(chosen(["m-q8_0.gguf", "mmproj-m-f16.gguf"], null)).toEqual(["m-q8_0.gguf"]);
  expect(chosen(["mmproj-m-f16.gguf"], null)).toBe(
    "a/b has neither model.safetensors, nor its index, nor a GGUF file.",
  );
});

test("a choice that is not clear is refused with all choices", () => {
  const list = ["Q4_K_M", "UD-Q4_K_M", "Q4_K_S"].map((quant) => `  a/b:${quant}  1.0 KiB`);
  expect(chosen(many.slice(0, 4), "Q4_K")).toBe(
    `a/b has no one GGUF model for "Q4_K"; name one:\n${list.join("\n")}`,
  );
  expect(chosen(many.slice(0, 4), null)).toStartWith("a/b has several GGUF models; name one:\n");
  expect(chosen([parts[1]!], "BF16")).toBe("a/b has 1 of the 2 parts of BF16/m-BF16-00002-of-00002.gguf.");
});

test("of a folder the descriptions and the safetensors are taken, and no pickle", () => {
  const paths = [
    ...["config.json", "tokenizer.json", "chat_template.jinja", "merges.txt", "1_Pooling/config.json"],
    ...["adapter_config.json", "onnx/config.json", "README.md", "pytorch_model.bin", "training_args.pt"],
    ...["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "consolidated.safetensors"],
  ];
  const files = sized(paths);
  expect(descriptionsOf(files).map(({ path }) => path)).toEqual(paths.slice(0, 5));
  const shards = new Set(["model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors"]);
  expect(weightsOf(files, null)).toBeNull();
  expect(weightsOf(files, shards)!.map(({ path }) => path)).toEqual(paths.slice(10, 12));
  expect(() => weightsOf(files, new Set(["../x.safetensors"]))).toThrow("names ../x.safetensors, which");
});

test.each([
  ["a-Q4_K_M.gguf", "Q4_K_M"],
  ["x/a-UD-IQ2_XXS-00001-of-00003.gguf", "UD-IQ2_XXS"],
  ["gpt-oss-20b-mxfp4.gguf", "mxfp4"],
  ["a.gguf", null],
])("the quant of %s", (path, quant) => expect(quantOf(path)).toBe(quant));

test("Ollama's names lead to repositories", () => {
  expect(ollamaModel("qwen3:0.6b")).toEqual({
    name: "unsloth/Qwen3-0.6B-GGUF",
    revision: "main",
    variant: "Q4_K_M",
  });
  expect(ollamaModel("qwen3")).toEqual(ollamaModel("qwen3:8b"));
  expect(ollamaModel("qwen3:latest")).toEqual(ollamaModel("qwen3:8b"));
  expect(ollamaModel("gemma4")!.name).toBe("unsloth/gemma-4-E4B-it-GGUF");
  expect(ollamaModel("glm-4.7-flash")!.name).toBe("unsloth/GLM-4.7-Flash-GGUF");
  for (const name of ["demo", "qwen3:9b", "constructor", "qwen3:constructor"])
    expect(ollamaModel(name)).toBeNull();
  expect(unknownName("Gemma2:1b")).toBe(
    '"Gemma2:1b" names no model: known are gemma2:9b, gemma2:2b, gemma2:27b.',
  );
  expect(unknownName("gemma")).toContain("write a repository such as Qwen/Qwen3-0.6B");
  for (const name of ollamaNames()) expect(ollamaModel(name)!.name).toMatch(/^[\w-]+\/[\w.-]+-GGUF$/);
});
