/**
 * Writes generated files: reference documents, and a table of storage types. `bun tools/docs.ts`. A test
 * fails if one is out of date.
 */

import { join, resolve } from "node:path";
import { batchSettings } from "../server/cli/batch.ts";
import { benchSettings } from "../server/cli/bench.ts";
import { cacheSettings } from "../server/cli/cache.ts";
import { chatSettings } from "../server/cli/chat-command.ts";
import { jobsSettings } from "../server/cli/jobs.ts";
import { pullSettings } from "../server/cli/pull.ts";
import { simulateSettings } from "../server/cli/simulate.ts";
import { topSettings } from "../server/cli/top/top.ts";
import { whySettings } from "../server/cli/why.ts";
import { defaultText, optionName, type Setting, serverSettings, variableName } from "../server/config.ts";
import { modelsReference } from "./models-reference.ts";
import { storedTypesModule } from "./stored-types.ts";

/** Content of docs/reference/config.md: every setting of every command. */
export function configReference(): string {
  return `# Settings

Made from \`server/config.ts\` and the commands in \`server/cli/\` by \`bun tools/docs.ts\`; do not edit.
An option on the command line wins over its environment variable, which wins over the file of
\`--config\`, which wins over the default.

## bunting serve [model]

\`model\` is a Hugging Face folder with \`config.json\`, \`*.safetensors\` and \`tokenizer.json\`, a [GGUF file](gguf.md), or
[a published name](../serve-a-model.md), whose files are fetched if they are not in the cache; without it the embedded model is
served as \`demo\`.

${settingsTable(serverSettings)}

## bunting chat [model]

Talks to \`--url\`; without it to the server on port 8000; and when there is none, or a model is given, to a server that it
starts on a free port with the settings of \`serve\`.

${settingsTable(chatSettings)}

## bunting bench

${settingsTable(benchSettings)}

## bunting batch &lt;input&gt; [model]

Runs a file of prompts ([jobs.md](jobs.md#from-the-command-line)); \`-o\` is \`--output\`.

${settingsTable(batchSettings)}

## bunting jobs list|show|cancel [id]

${settingsTable(jobsSettings)}

## bunting pull &lt;model&gt;

Fetches a [published model](../serve-a-model.md) without serving it, and what is new in one that is there. \`bunting models\`
lists them and \`bunting models rm\` removes one; both have no options.

${settingsTable(pullSettings)}

## bunting cache [clear [model]]

Lists [KV pages on disk](../serve-a-model.md#prefixes-on-disk) by model, with sizes and last use, or removes them.

${settingsTable(cacheSettings)}

## bunting simulate

Runs the scheduler that serves in virtual time: the same code on devices that only take the time that was measured of real
ones. Prints what clients would feel, one row per policy, and a hash of each history: the same settings give the same
history on every machine.

${settingsTable(simulateSettings)}

## bunting doctor [model]

Takes the settings of \`serve\` and says what this machine would do with them, why it would not start, and how fast the model
may be ([reference](doctor.md)). \`--json\` prints that as an object. Its exit code is 0 when \`serve\` with the same settings would start.

## bunting top

Shows a running server in the [terminal](observability.md#the-terminal).

${settingsTable(topSettings)}

## bunting why [id]

Shows where the [time of a request](time.md) went, or lists a server's slowest requests.

${settingsTable(whySettings)}

## bunting completion bash|zsh|fish

Prints a script that completes commands, options and file names in that shell; it has no options.
`;
}

function settingsTable(settings: Readonly<Record<string, Setting<unknown>>>): string {
  const rows = Object.entries(settings).map(([name, setting]) => {
    const option =
      setting.placeholder === null ? optionName(name) : `${optionName(name)} <${setting.placeholder}>`;
    const variable = setting.placeholder === null ? "" : `\`${variableName(name)}\``;
    return `| \`${option.replaceAll("|", "\\|")}\` | ${variable} | ${defaultText(setting) ?? ""} | ${setting.sentence} |`;
  });
  return ["| Option | Variable | Default | |", "|---|---|---|---|", ...rows].join("\n");
}

if (import.meta.main) {
  const root = resolve(import.meta.dir, "..");
  const types = join(root, "model", "stored-types.ts");
  if ((await Bun.file(types).text()) !== storedTypesModule()) {
    await Bun.write(types, storedTypesModule());
    // Runs again, because this process has loaded the old table.
    process.exit(
      Bun.spawnSync([process.execPath, import.meta.path], { stdio: ["inherit", "inherit", "inherit"] })
        .exitCode,
    );
  }
  const folder = join(root, "docs", "reference");
  await Bun.write(join(folder, "config.md"), configReference());
  await Bun.write(join(folder, "models.md"), modelsReference());
}
