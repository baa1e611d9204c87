/** Configuration file: TOML with the names of the command-line options, and a table for each model. */

import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { ioReason } from "../model/model-error.ts";
import { adapterPlace } from "./adapters.ts";
import { closestTo } from "./closest.ts";
import { type Config, ConfigError, fromHome, optionName, type Setting, serverSettings } from "./config.ts";

/** Settings that each model may have in its own table. */
const modelSettingNames = [
  "device",
  "threads",
  "dtype",
  "quant",
  "kv",
  "gemm",
  "packedWeights",
  "lora",
  "maxModelLen",
  "kvCacheGib",
  "stepTokens",
  "tbtMs",
  "speculate",
  "draftModel",
  "sequencesMax",
  "queueMax",
  "keepAlive",
  "chatTemplateKwargs",
  "ropeScaling",
] as const satisfies readonly (keyof Config)[];

const samplingNames = ["temperature", "top-k", "top-p", "min-p", "repetition-penalty"] as const;
const samplingMax = {
  temperature: 100,
  "top-k": 2 ** 31 - 1,
  "top-p": 1,
  "min-p": 1,
  "repetition-penalty": 1000,
};

/** Default sampling of a model, in place of its own. */
export type SamplingNumbers = Readonly<Partial<Record<(typeof samplingNames)[number], number>>>;

/** Table `[model.name]` of a file. */
export interface ModelTable {
  readonly name: string;
  /** Folder, GGUF file or published name. A relative path is one from the file's folder. */
  readonly path: string;
  readonly isPinned: boolean;
  /** File or name of a chat template in place of the model's default; null: as `--chat-template` says. */
  readonly template: string | null;
  readonly sampling: SamplingNumbers;
  readonly settings: Partial<Config>;
}

export interface ConfigFile {
  readonly settings: Partial<Config>;
  readonly models: readonly ModelTable[];
}

type Table = Readonly<Record<string, unknown>>;

/** Reads and checks the file. Throws ConfigError, which names the file, the key, and for an unknown key a close one. */
export function readConfigFile(file: string): ConfigFile {
  try {
    return configOf(tableOf(readFileSync(file, "utf8")), dirname(resolve(file)));
  } catch (error) {
    if (error instanceof ConfigError) throw new ConfigError(`${file}: ${error.message}`);
    if (error instanceof Error && "code" in error && typeof error.code === "string")
      throw new ConfigError(`--config ${file} ${ioReason(error)}.`);
    throw new ConfigError(`${file} is not TOML: ${(error as Error).message}`);
  }
}

/** Lines of a file whose wrong line is looked for: each takes parsing the file anew. */
const LINES_MAX = 1000;

/**
 * Parses TOML. The parser names no line, so the error gets the one on which the wrong entry begins: the first
 * after the longest part of whole lines that parses.
 */
function tableOf(text: string): Table {
  try {
    return Bun.TOML.parse(text) as Table;
  } catch (error) {
    const reason = (error as Error).message.replace(/^TOML Parse error: /, "");
    const lines = text.split(/(?<=\n)/);
    const isRight = (count: number): boolean => isToml(lines.slice(0, count).join(""));
    const wrong = lines.length > LINES_MAX ? -1 : lines.findLastIndex((_, index) => isRight(index));
    throw new SyntaxError(wrong === -1 ? reason : `the entry in line ${wrong + 1}: ${reason}`);
  }
}

function isToml(text: string): boolean {
  try {
    Bun.TOML.parse(text);
    return true;
  } catch {
    return false;
  }
}

function configOf(table: Table, folder: string): ConfigFile {
  const names = (Object.keys(serverSettings) as (keyof Config)[]).filter((name) => name !== "config");
  const { model, ...others } = table;
  if (!isTable(model)) return { settings: settingsIn(table, names, ""), models: [] };
  const models = Object.entries(model).map(([name, value]) => modelOf(name, value, folder));
  return { settings: settingsIn(others, names, ""), models };
}

function modelOf(name: string, table: unknown, folder: string): ModelTable {
  const at = `model.${name}`;
  if (!isTable(table)) throw new ConfigError(`${at} is not a table, such as [${at}] with path = "…".`);
  const { path, pin = false, template = null, sampling = {}, ...others } = table;
  if (typeof path !== "string" || path === "")
    throw new ConfigError(`${at}.path is not a path, but ${shown(path)}.`);
  if (typeof pin !== "boolean") throw new ConfigError(`${at}.pin is not true or false, but ${shown(pin)}.`);
  if (template !== null && typeof template !== "string")
    throw new ConfigError(`${at}.template is not a path or a name, but ${shown(template)}.`);
  const own = ["path", "pin", "template", "sampling"];
  const placed = (given: string): string => (/^[./~]/.test(given) ? resolve(folder, fromHome(given)) : given);
  const settings = settingsIn(others, modelSettingNames, `${at}.`, own);
  const { draftModel, lora } = settings;
  const adapters = lora?.map((given) => {
    const [adapter, path] = adapterPlace(given);
    return `${adapter}=${resolve(folder, path)}`;
  });
  return {
    name,
    path: placed(path),
    isPinned: pin,
    // A name of one of the model's templates has neither folders nor an ending.
    template: template === null || /^[\w-]+$/.test(template) ? template : resolve(folder, fromHome(template)),
    sampling: samplingOf(sampling, `${at}.sampling`),
    settings: {
      ...settings,
      ...(draftModel ? { draftModel: placed(draftModel) } : {}),
      ...(adapters === undefined ? {} : { lora: adapters }),
    },
  };
}

function samplingOf(table: unknown, at: string): SamplingNumbers {
  if (!isTable(table)) throw new ConfigError(`${at} is not a table, but ${shown(table)}.`);
  for (const [name, value] of Object.entries(table)) {
    const known = samplingNames.find((one) => one === name);
    if (known === undefined) throw unknownKey(`${at}.`, name, samplingNames);
    if (typeof value !== "number" || !(value >= 0 && value <= samplingMax[known]))
      throw new ConfigError(
        `${at}.${name} is not a number from 0 to ${samplingMax[known]}, but ${shown(value)}.`,
      );
  }
  return table as SamplingNumbers;
}

/** Parses the settings of a table. `more`: keys that it may have besides. */
function settingsIn(
  table: Table,
  names: readonly (keyof Config)[],
  at: string,
  more: readonly string[] = [],
): Partial<Config> {
  const fields = new Map(names.map((name) => [optionName(name).slice("--".length), name]));
  const entries = Object.entries(table).map(([key, value]) => {
    const field = fields.get(key);
    if (field === undefined) throw unknownKey(at, key, [...fields.keys(), ...more]);
    try {
      return [field, settingValue(serverSettings[field], value)];
    } catch (error) {
      throw error instanceof ConfigError ? new ConfigError(`${at}${key}: ${error.message}`) : error;
    }
  });
  return Object.fromEntries(entries) as Partial<Config>;
}

function settingValue(setting: Setting<unknown>, value: unknown): unknown {
  if (setting.placeholder === null) {
    if (typeof value === "boolean") return value;
    throw new ConfigError(`It is not true or false, but ${shown(value)}.`);
  }
  if (isTable(value)) return setting.parse(JSON.stringify(value));
  if (Array.isArray(value) && setting.repeats)
    return value.flatMap((item) => setting.parse(textOf(item)) as readonly unknown[]);
  return setting.parse(textOf(value));
}

function textOf(value: unknown): string {
  if (typeof value === "string" || typeof value === "number") return String(value);
  throw new ConfigError(`It is not a text or a number, but ${shown(value)}.`);
}

function unknownKey(at: string, key: string, known: readonly string[]): ConfigError {
  const close = closestTo(key.replaceAll("_", "-").toLowerCase(), known);
  const hint = close === null ? "." : `; did you mean ${close}?`;
  return new ConfigError(`${at}${key} is not a setting${hint}`);
}

function isTable(value: unknown): value is Table {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function shown(value: unknown): string {
  return value === undefined ? "absent" : JSON.stringify(value);
}
