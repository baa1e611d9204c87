/**
 * Generates docs/reference/models.md from the descriptions of families, the models in tests, and the formats
 * of engines.
 */
import { parseModelConfig, readModelConfig } from "../model/config.ts";
import type { Family } from "../model/families/family.ts";
import { families } from "../model/families/index.ts";
import { formatName, formatsOf } from "../model/formats.ts";
import { schemes } from "../model/quantisation-schemes.ts";
import { storedTypes } from "../model/stored-types.ts";
import { TensorKind } from "../model/tensor-kinds.ts";
import { encoderFile, encoderFolders } from "../tests/reference/encoders.ts";
import { cpuOnly, foldersOnly } from "../tests/reference/families.ts";
import { familyConfigs } from "../tests/reference/family-configs.ts";
import { gpuReferenceNames, referenceModels } from "../tests/reference/models.ts";
import { dialects } from "../tests/support/dialects.ts";
import { type CallFormName, callForms } from "../text/formats/call-forms.ts";
import { writtenCalls } from "../text/formats/written-calls.ts";

/** Model that a test compares with transformers. */
interface Compared {
  readonly name: string;
  readonly family: string;
  readonly test: "correctness" | "families" | "encoders";
  readonly isOnGpus: boolean;
  readonly isFromFile: boolean;
}

export function modelsReference(): string {
  const compared: Compared[] = [
    ...referenceModels().map(
      ({ name, dir }): Compared => ({
        name,
        family: readModelConfig(dir).family,
        test: "correctness",
        isOnGpus: (gpuReferenceNames as readonly string[]).includes(name),
        isFromFile: true,
      }),
    ),
    ...Object.entries(familyConfigs).map(([name, json]): Compared => {
      const config = { file: name, json: JSON.parse(JSON.stringify(json)) };
      const { family } = parseModelConfig(config, { file: "", json: {} });
      return {
        name,
        family,
        test: "families",
        isOnGpus: !cpuOnly.includes(name),
        isFromFile: !foldersOnly.includes(name),
      };
    }),
  ];
  for (const { name, dir } of encoderFolders()) {
    const { family } = readModelConfig(dir);
    compared.push({
      name,
      family,
      test: "encoders",
      isOnGpus: false,
      isFromFile: encoderFile(name) !== null,
    });
  }
  const rows = families.map((family) =>
    rowOf(
      family,
      compared.filter((model) => model.family === family.name),
    ),
  );
  return `# Models

Made from \`model/families/\`, the models in \`tests/reference/\` and the dialects in \`tests/support/\` by \`bun tools/docs.ts\`; do not edit. Each family is
read from a Hugging Face folder, by the class that its \`config.json\` names, and from a [GGUF file](gguf.md), by its architecture.

The models of the last columns are small ones of random weights that tests compare with Hugging Face transformers. On CPUs the logits in f32
are theirs to 2e-4, from a folder and from a file; in bf16, there and on the emulated GPU, their cosine to those is above 0.998.
Vectors and scores of encoders are those of sentence-transformers to 1e-4. GPUs refuse encoders, experts without gates and
Gemma 3n.
\`correctness\`, \`families\` and \`encoders\` are tests in \`tests/device/\`; files of models of the first are compared by \`gguf\` there. That results do not
depend on chunks, cache or company is tested on CPUs and GPUs for every kind of layer (\`kinds\`). GPUs compute in bf16 alone, and want
heads of 32, 64, 96, 128, 256 or 512 numbers, of which a multiple of 4 turns, widths that are multiples of 8, and at most 32 experts
for a token; a model with others (here llama2, llama3 and qwen3) is refused by a sentence.

| Models | Class | GGUF | On CPUs, f32 and bf16 | From a GGUF file | On GPUs, bf16 | Test | [Calls](#calls-and-thoughts) | Thoughts |
|---|---|---|---|---|---|---|---|---|
${rows.join("\n")}

## Calls and thoughts

The server finds the form of a model's calls, and the marks of its thoughts, in the chat template: a model of any family may have any of
them. Columns of the table above name those of the published models; "none" if no template with any was found. \`call-forms\` and \`dialects\` are tests in \`text/formats/\`: what a
model writes is allowed by the grammar, read in pieces of any size, and written by a template of our own in that dialect to the same text, so
that the next prompt begins with this one and its answer. \`written-calls\` reads calls of any names and arguments in every form.

| Form | A call (\`⏎\` is a line break) | Models |
|---|---|---|
${formRows().join("\n")}

## Formats

What a matrix becomes in bf16 with \`--quant auto\` where its tensors are stored in this type, and what the other values of \`--quant\` make of
plain ones (\`formats\` is a test in \`model/\`):

| Stored in, or asked for | On CPUs | On GPUs | Test |
|---|---|---|---|
${formatRows().join("\n")}

Weights and their formats are in [weights.md](weights.md). Models of text and images are served without the images. Code that comes with
a model is never run. A configuration that says something which changes the mathematics and is not known here is refused by the
name of the field.
`;
}

function rowOf(family: Family, compared: readonly Compared[]): string {
  const code = (names: readonly string[]): string => names.map((name) => `\`${name}\``).join(", ");
  const all = compared.map(({ name }) => name).join(", ");
  // Names of the models that match, or a word if all or none do.
  const those = (is: (model: Compared) => boolean): string => {
    const names = compared.filter(is).map(({ name }) => name);
    return names.length === compared.length ? "all of these" : names.length === 0 ? "none" : names.join(", ");
  };
  const cells = [
    family.models,
    code([...family.classes, ...(family.wrappers ?? [])]),
    code([...family.metadata, ...(family.ggufAs ? [family.ggufAs] : [])]) || "not read",
    all,
    those(({ isFromFile }) => isFromFile),
    those(({ isOnGpus }) => isOnGpus),
    code([...new Set(compared.map(({ test }) => test))]),
    ...dialectCells(family.name),
  ];
  return `| ${cells.join(" | ")} |`;
}

/** Tool-call formats and reasoning delimiters of a family's models. */
function dialectCells(family: string): readonly string[] {
  const own = [...dialects.values()].filter(({ families }) => families.includes(family));
  const names = new Set(own.flatMap(({ calls }) => (calls === null ? [] : [calls])));
  const marks = new Set(own.flatMap(({ thoughts }) => (thoughts === null ? [] : [codeOf(thoughts)])));
  return [names, marks].map((all) => (all.size === 0 ? "none" : [...all].join(", ")));
}

function formRows(): string[] {
  return (Object.keys(callForms) as CallFormName[]).map((name) => {
    const own = [...dialects.values()].filter(({ calls }) => calls === name).map(({ models }) => models);
    return `| ${name} | ${codeOf(writtenCalls(callForms[name], [{ name: "get_weather", arguments: { city: "Rome", days: 3 } }]))} | ${own.join("; ")} |`;
  });
}

/** Text as code in a cell of a table. */
function codeOf(text: string): string {
  const fence = text.includes("```") ? "````" : "`";
  return fence + text.replaceAll("\n", "⏎").replaceAll("|", "\\|") + fence;
}

function formatRows(): string[] {
  const row = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  const becomes = (dtype: number, device: "cpu" | "gpu"): string => {
    const format = formatName(
      formatsOf([{ tensor: TensorKind.o, layer: 0, dtype }], 1, "auto", "bf16", device)[4]!,
    );
    return format === "plain" ? "bf16" : format;
  };
  const stored = Object.entries(storedTypes).map(([name, { number, kind }]) => {
    const test =
      kind === "numbers" ? "`families`, `gguf`" : kind === "blocks" ? "`gguf`, `gpu`" : "`gguf`, `formats`";
    return row([name, becomes(number, "cpu"), becomes(number, "gpu"), test]);
  });
  const asked = ["int8", "q8_0", "int6", "int4"].map((name) =>
    row([`\`--quant ${name}\``, name, name === "int6" ? "int6, in bytes" : name, "`quantised`, `gpu`"]),
  );
  const folders = [...Object.keys(schemes), "mxfp4"].map((method) =>
    row([`\`${method}\` folders`, "blocks above", "blocks above", "`quantised-folders`"]),
  );
  return [...stored, ...asked, row(["`--quant fp8`", "refused", "fp8", "`gpu`"]), ...folders];
}
