/** Chat templates of a model's folder, by their names, and the special tokens that they write. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { TemplateError } from "./template-error.ts";

/** Source of a chat template. */
export interface TemplateSource {
  /** Jinja. */
  readonly template: string;
  /** Template for requests with tools, if there is a separate one. */
  readonly toolTemplate: string | null;
  /** bos_token, eos_token and the like, as the template's variables. */
  readonly specialTokens: Readonly<Record<string, string>>;
  /** JSON of default arguments, for requests that do not set them; absent: none. */
  readonly argumentsText?: string;
}

/** All templates of a model. */
export interface TemplateSet {
  /** Files that name them, for messages. */
  readonly path: string;
  readonly byName: ReadonlyMap<string, string>;
  readonly specialTokens: Readonly<Record<string, string>>;
}

type Json = Readonly<Record<string, unknown>>;

/**
 * A folder's default template; null if it has none: the model then supports completions but no chat. Throws
 * TemplateError.
 */
export function readTemplateSource(folder: string): TemplateSource | null {
  return usualTemplate(readTemplates(folder));
}

/** The model's usual template with that for tools; null if it has none. Throws TemplateError. */
export function usualTemplate({ path, byName, specialTokens }: TemplateSet): TemplateSource | null {
  const template = byName.get("default");
  if (template !== undefined)
    return { template, toolTemplate: byName.get("tool_use") ?? null, specialTokens };
  if (byName.size === 0) return null;
  throw new TemplateError(`${path}: there is no chat template "default" among ${namesOf(byName)}`);
}

/**
 * The template of that name or in that file, in place of the model's usual one. Throws TemplateError, which
 * names the model's templates.
 */
export function chosenTemplate(choice: string, { byName, specialTokens }: TemplateSet): TemplateSource {
  const named = byName.get(choice);
  if (named !== undefined) return { template: named, toolTemplate: null, specialTokens };
  try {
    return { template: readFileSync(choice, "utf8"), toolTemplate: null, specialTokens };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const own = byName.size === 0 ? "the model has none of its own" : `the model has ${namesOf(byName)}`;
    const reason = code === "ENOENT" ? "is no file, and no name of a chat template" : message;
    throw new TemplateError(`${choice} ${reason}; ${own}`);
  }
}

function namesOf(byName: ReadonlyMap<string, string>): string {
  return [...byName.keys()].join(", ");
}

/**
 * A folder's templates: chat_template.jinja, else `chat_template` of tokenizer_config.json (a text, or a list
 * of named ones), chat_template.json or processor_config.json; and those of additional_chat_templates/. Throws
 * TemplateError.
 */
export function readTemplates(folder: string): TemplateSet {
  const path = join(folder, "tokenizer_config.json");
  const config = configIn(path);
  const byName = new Map<string, string>();
  const main = join(folder, "chat_template.jinja");
  if (existsSync(main)) byName.set("default", reading(main, readText));
  for (const name of ["tokenizer_config.json", "chat_template.json", "processor_config.json"]) {
    if (byName.size > 0) break;
    const file = join(folder, name);
    for (const [given, template] of templatesIn(file, configIn(file).chat_template))
      byName.set(given, template);
  }
  const others = join(folder, "additional_chat_templates");
  for (const name of existsSync(others) ? reading(others, namesIn) : [])
    if (name.endsWith(".jinja"))
      byName.set(name.slice(0, -".jinja".length), reading(join(others, name), readText));
  return { path: folder, byName, specialTokens: specialTokensOf(specialTokensIn(folder, config)) };
}

const readText = (path: string): string => readFileSync(path, "utf8");
const namesIn = (path: string): readonly string[] => readdirSync(path).sort();

/** Result of reading a path. Errors of the file system become TemplateErrors that name it. */
function reading<T>(path: string, read: (path: string) => T): T {
  try {
    return read(path);
  } catch (error) {
    throw new TemplateError(`${path}: ${(error as Error).message}`);
  }
}

/** Named templates in the value of a configuration: a text is the default one. */
function templatesIn(path: string, value: unknown): readonly (readonly [string, string])[] {
  if (typeof value === "string") return [["default", value]];
  const entries: readonly unknown[] = Array.isArray(value)
    ? value
    : Object.entries(value ?? {}).map(([name, template]) => ({ name, template }));
  return entries.map((entry) => {
    const { name, template } = (entry ?? {}) as { readonly name?: unknown; readonly template?: unknown };
    if (typeof name !== "string" || typeof template !== "string")
      throw new TemplateError(`${path}: an entry of chat_template has no name, or no template`);
    return [name, template];
  });
}

/**
 * Configuration of special tokens: of tokenizer_config.json, and of special_tokens_map.json, whose values count
 * where the first one lists no added tokens, as in transformers.
 */
export function specialTokensIn(folder: string, config: Json): Json {
  const map = configIn(join(folder, "special_tokens_map.json"));
  return config.added_tokens_decoder === undefined ? { ...config, ...map } : { ...map, ...config };
}

/** Texts of the special tokens by their names, such as bos_token. */
export function specialTokensOf(config: Json): Record<string, string> {
  const extra = config.extra_special_tokens;
  const named = typeof extra === "object" && extra !== null && !Array.isArray(extra) ? extra : {};
  const texts = Object.entries({ ...named, ...config }).map(([name, value]) => {
    const text = typeof value === "string" ? value : (value as { content?: unknown } | null)?.content;
    return [name, name.endsWith("_token") && typeof text === "string" ? text : null] as const;
  });
  return Object.fromEntries(texts.filter((entry): entry is [string, string] => entry[1] !== null));
}

/** A JSON object in a file; empty if there is no file. Throws TemplateError. */
function configIn(path: string): Json {
  if (!existsSync(path)) return {};
  const value = reading(path, (file): unknown => JSON.parse(readText(file)));
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Json;
  throw new TemplateError(`${path}: it is not a JSON object`);
}
