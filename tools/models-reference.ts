/** docs/reference/models.md: what is served, from the descriptions of families and the models that tests compare. */
import { parseModelConfig, readModelConfig } from "../gpu/model/config.ts";
import type { Family } from "../gpu/model/families/family.ts";
import { families } from "../gpu/model/families/index.ts";
import type { ModelShape } from "../gpu/model/shape.ts";
import { familyConfigs } from "../tests/reference/families.ts";
import { referenceModels } from "../tests/reference/models.ts";

/** A model that a test compares with transformers. */
interface Compared {
  readonly name: string;
  readonly family: string;
  readonly shape: ModelShape;
}

export function modelsReference(): string {
  const compared: Compared[] = [
    ...referenceModels().map(({ name, dir }) => ({ name, ...readModelConfig(dir) })),
    ...Object.entries(familyConfigs).map(([name, json]) => ({
      name,
      ...parseModelConfig({ file: name, json: JSON.parse(JSON.stringify(json)) }, { file: "", json: {} }),
    })),
  ];
  const rows = families.map((family) =>
    rowOf(
      family,
      compared.filter((model) => model.family === family.name),
    ),
  );
  return `# Models

Made from \`gpu/model/families/\` and the models in \`tests/reference/\` by \`bun tools/docs.ts\`; do not edit. Each family is
read from a Hugging Face folder, by the class that its \`config.json\` names, and from a [GGUF file](gguf.md), by its architecture.

The CPU engine computes all of them. For each model in the last column its logits in f32 are those of Hugging Face transformers
(\`tests/device/correctness.test.ts\`, \`tests/device/families.test.ts\`), from a folder and from a file; that results do not
depend on chunks, cache or company is tested for every kind of layer (\`tests/device/kinds.test.ts\`). Where the GPU engine
lacks a kernel, it refuses the model by a sentence with the words given here.

| Models | Class | GGUF | GPU | Compared |
|---|---|---|---|---|
${rows.join("\n")}

Weights and their formats are in [weights.md](weights.md). Models of text and images are served without the images. Code that comes with
a model is never run. A configuration that says something which changes the mathematics and is not known here is refused by the
name of the field.
`;
}

function rowOf(family: Family, compared: readonly Compared[]): string {
  const code = (names: readonly string[]): string => names.map((name) => `\`${name}\``).join(", ");
  const lacking = compared.map(({ shape }) => gpuLack(shape)).filter((lack) => lack !== null);
  const lacks = [...new Set(lacking)];
  const gpu =
    lacks.length === 0
      ? "yes"
      : lacking.length < compared.length
        ? `yes, but ${lacks.join("; ")}`
        : `no: ${lacks[0]}`;
  const cells = [
    family.models,
    code([...family.classes, ...(family.wrappers ?? [])]),
    family.metadata.length > 0 ? code(family.metadata) : family.ggufAs ? code([family.ggufAs]) : "not read",
    gpu,
    compared.map(({ name }) => name).join(", "),
  ];
  return `| ${cells.join(" | ")} |`;
}

/** The first thing that the GPU engine does not compute, in the words of csrc/cuda/weights.cpp; null: it computes all. */
export function gpuLack(shape: ModelShape): string | null {
  const lacks: readonly (readonly [boolean, string])[] = [
    [shape.norm !== "rms", "norms that subtract the mean"],
    [shape.activation === "geluTanh", "GELU"],
    [shape.attentionCap > 0 || shape.logitCap > 0, "soft caps of scores or logits"],
    ...shape.layers.flatMap((layer): [boolean, string][] => [
      [layer.mlp === "experts", "mixtures of experts"],
      [layer.parallel, "an MLP beside the attention"],
      [layer.norms !== "before", "norms after the attention or the MLP"],
      [layer.qkNorm === "wide", "norms over all heads of q and k"],
      [layer.sinks, "attention sinks"],
      [
        layer.rope !== null && shape.ropes[layer.rope]!.dimensions !== shape.headSize,
        "rotations of a part of each head",
      ],
    ]),
    [shape.activation === "clampedSwiglu", "a clamped SwiGLU"],
  ];
  return lacks.find(([isLacking]) => isLacking)?.[1] ?? null;
}
