/** Models of a multi-model server, from its options, its configuration file and a folder. */

import { readdirSync, statSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { ioReason } from "../../model/model-error.ts";
import { adapterPlace } from "../adapters.ts";
import { type Config, ConfigError, fromHome, optionName, serverSettings } from "../config.ts";
import { type ModelTable, readConfigFile, type SamplingNumbers } from "../config-file.ts";

/** Settings of one of several models. */
export interface ModelSetting {
  /** Name for clients. */
  readonly name: string;
  /** Folder, GGUF file or name of a published model. */
  readonly path: string;
  /** The server's settings with those of the model. */
  readonly config: Config;
  readonly isPinned: boolean;
  /** Default sampling in place of the model's own. */
  readonly sampling: SamplingNumbers;
}

/**
 * Settings of all models. Empty for a server of one model: the one at `dir`, or the one that comes with
 * Bunting. Throws ConfigError.
 */
export function modelsOf(config: Config, dir: string | null): readonly ModelSetting[] {
  const tables = [
    ...config.model.map(named),
    ...(config.config === null ? [] : readConfigFile(config.config).models),
    ...(config.models === null ? [] : modelsIn(config.models)),
  ];
  if (tables.length === 0) {
    const alone = Object.entries({
      pin: config.pin.length > 0,
      memory: config.memory > 0,
      keepAlive: config.keepAlive !== serverSettings.keepAlive.default,
    }).find(([, isGiven]) => isGiven);
    if (alone !== undefined)
      throw new ConfigError(
        `${optionName(alone[0])} is for several models: name them with --model or --models.`,
      );
    return [];
  }
  if (dir !== null)
    throw new ConfigError(
      `${dir} is the argument of a server of one model: name it with --model beside others.`,
    );
  expectSeveral(config);
  const names = tables.map(({ name }) => name);
  const all = tables.flatMap(({ name, settings: { lora = [] } }) => [
    name,
    ...lora.map((given) => adapterPlace(given)[0]),
  ]);
  const twice = all.find((name, at) => all.indexOf(name) < at);
  if (twice !== undefined) throw new ConfigError(`Two models or adapters have the name ${twice}.`);
  const unknown = config.pin.find((name) => !names.includes(name));
  if (unknown !== undefined)
    throw new ConfigError(`--pin ${unknown}: no model has that name; there are ${names.join(", ")}.`);
  return tables.map(({ settings, template, ...table }) => ({
    ...table,
    isPinned: table.isPinned || config.pin.includes(table.name),
    config: {
      ...config,
      ...settings,
      servedModelName: [table.name],
      chatTemplate: template ?? config.chatTemplate,
    },
  }));
}

/** Refuses options that only a server of one model supports. */
function expectSeveral({ lora, servedModelName, record, programs, parrotApi, showCachedText }: Config): void {
  if (lora.length > 0)
    throw new ConfigError(
      "--lora is for a server of one model, and this one has several: a model's table in the file of --config has `lora`.",
    );
  const given = Object.entries({
    servedModelName: servedModelName.length > 0,
    record: record !== null,
    programs: programs !== null,
    parrotApi,
    showCachedText,
  }).find(([, isGiven]) => isGiven);
  if (given !== undefined)
    throw new ConfigError(`${optionName(given[0])} is for a server of one model, and this one has several.`);
}

/** Reads `name=path`; a path alone is named by its last part. */
function named(text: string): ModelTable {
  const at = text.indexOf("=");
  const path = fromHome(text.slice(at + 1));
  const name = at === -1 ? nameOf(path) : text.slice(0, at);
  if (name === "" || path === "")
    throw new ConfigError(`--model ${text} is not a name and a path, such as small=models/small.`);
  return tableOf(name, path);
}

/** Model folders and GGUF files of a folder, by their names. */
function modelsIn(folder: string): ModelTable[] {
  let names: string[];
  try {
    names = readdirSync(folder).sort();
  } catch (error) {
    throw new ConfigError(`--models ${folder} ${ioReason(error)}.`);
  }
  const found = names.filter((name) => isModel(join(folder, name)));
  if (found.length === 0)
    throw new ConfigError(
      `--models ${folder} has no model: no GGUF file, and no folder with a config.json or a GGUF file.`,
    );
  return found.map((name) => tableOf(nameOf(name), join(folder, name)));
}

function isModel(path: string): boolean {
  if (!statSync(path, { throwIfNoEntry: false })?.isDirectory()) return path.endsWith(".gguf");
  return readdirSync(path).some((name) => name === "config.json" || name.endsWith(".gguf"));
}

function nameOf(path: string): string {
  return basename(resolve(path)).replace(/\.gguf$/, "");
}

function tableOf(name: string, path: string): ModelTable {
  return { name, path, isPinned: false, template: null, sampling: {}, settings: {} };
}
