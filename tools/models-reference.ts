/** docs/reference/models.md: what is served, from the descriptions of families and the models that tests compare. */
import { parseModelConfig, readModelConfig } from "../gpu/model/config.ts";
import type { Family } from "../gpu/model/families/family.ts";
import { families } from "../gpu/model/families/index.ts";
import { familyConfigs } from "../tests/reference/families.ts";
import { referenceModels } from "../tests/reference/models.ts";

/** A model that a test compares with transformers. */
interface Compared {
  readonly name: string;
  readonly family: string;
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

The CPU engine and GPUs compute all of them. For each model in the last column the CPU engine's logits in f32 are those of Hugging Face
transformers to 2e-4, from a folder and from a file; in bf16, on the CPU and on the emulated GPU, their cosine to those is above 0.998
(\`tests/device/correctness.test.ts\`, \`tests/device/families.test.ts\`). That results do not depend on chunks, cache or company is
tested on both for every kind of layer (\`tests/device/kinds.test.ts\`). GPUs compute in bf16 alone, and want heads of 32, 64, 96, 128,
256 or 512 numbers, of which a multiple of 4 turns, widths that are multiples of 8, and at most 32 experts for a token; a model with others
(here llama2, llama3 and qwen3) is refused by a sentence.

| Models | Class | GGUF | Compared |
|---|---|---|---|
${rows.join("\n")}

Weights and their formats are in [weights.md](weights.md). Models of text and images are served without the images. Code that comes with
a model is never run. A configuration that says something which changes the mathematics and is not known here is refused by the
name of the field.
`;
}

function rowOf(family: Family, compared: readonly Compared[]): string {
  const code = (names: readonly string[]): string => names.map((name) => `\`${name}\``).join(", ");
  const cells = [
    family.models,
    code([...family.classes, ...(family.wrappers ?? [])]),
    family.metadata.length > 0 ? code(family.metadata) : family.ggufAs ? code([family.ggufAs]) : "not read",
    compared.map(({ name }) => name).join(", "),
  ];
  return `| ${cells.join(" | ")} |`;
}
