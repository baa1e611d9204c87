/** Resolves a name of a model or an adapter to a path: an existing one, one in the cache, or one that it downloads. */

import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { openModelFolder } from "../../model/folder.ts";
import {
  type PublishedModel,
  publishedText,
  readPublishedName,
  snapshotFolder,
} from "../../model/hub-cache.ts";
import { ModelError } from "../../model/model-error.ts";
import { adapterFiles, chooseGguf, ggufModels } from "./choose.ts";
import { HubError } from "./hub-error.ts";
import { ollamaModel, ollamaNames } from "./ollama-names.ts";
import { type PullOptions, pullModel } from "./pull.ts";
import { hubSettings } from "./settings.ts";

/** Parses a name: a repository of the hub, or one of Ollama's names; null for anything else. */
export function readModelName(name: string): PublishedModel | null {
  return readPublishedName(name) ?? ollamaModel(name);
}

/** Error sentence for a name that `readModelName` does not know. */
export function unknownName(name: string): string {
  const ofFamily = `${name.replace(/:.*/s, "").toLowerCase()}:`;
  const others = ollamaNames().filter((known) => known.startsWith(ofFamily));
  if (others.length > 0) return `"${name}" names no model: known are ${others.join(", ")}.`;
  return `"${name}" names no model: write a repository such as Qwen/Qwen3-0.6B, with :Q4_K_M for one of its GGUF files, or a known name of Ollama's, such as qwen3:0.6b.`;
}

/**
 * Path of a model's folder or GGUF file. Uses a complete model in the cache without any request; downloads
 * others. Returns a text that is no name unchanged.
 */
export async function resolveModel(
  name: string,
  options: Omit<PullOptions, "settings"> & Partial<Pick<PullOptions, "settings">>,
): Promise<string> {
  if (existsSync(name)) return name;
  const model = readModelName(name);
  if (model === null) return name;
  const settings = options.settings ?? hubSettings();
  return cachedModel(settings.cache, model) ?? (await pullModel(model, { ...options, settings }));
}

/** Path of a model that is complete in the cache; null if it is not. */
export function cachedModel(cache: string, model: PublishedModel): string | null {
  const folder = snapshotFolder(cache, model);
  if (folder === null) return null;
  try {
    const path = pathIn(folder, model);
    openModelFolder(path);
    return path;
  } catch (error) {
    if (error instanceof ModelError || error instanceof HubError) return null;
    throw error;
  }
}

/** The same for a LoRA adapter: a folder with PEFT's files or a GGUF file. */
export async function resolveAdapter(
  name: string,
  options: Omit<PullOptions, "settings" | "plan"> & Partial<Pick<PullOptions, "settings">>,
): Promise<string> {
  const adapter = existsSync(name) ? null : readPublishedName(name);
  if (adapter === null) return name;
  const settings = options.settings ?? hubSettings();
  const cached = cachedAdapter(settings.cache, adapter);
  return cached ?? (await pullModel(adapter, { ...options, settings, plan: null }));
}

/** Path of an adapter that is complete in the cache; null if it is not. */
export function cachedAdapter(cache: string, adapter: PublishedModel): string | null {
  const folder = snapshotFolder(cache, adapter);
  if (folder === null) return null;
  const files = filesIn(folder);
  if (adapter.variant === null && adapterFiles(files) !== null) return folder;
  if (ggufModels(files).length === 0) return null;
  return join(folder, chooseGguf(adapter.name, files, adapter.variant)[0]!.path);
}

function filesIn(folder: string): { readonly path: string; readonly bytes: number }[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .map((path) => ({ path, bytes: statSync(join(folder, path), { throwIfNoEntry: false })?.size ?? -1 }))
    .filter(({ bytes }) => bytes >= 0);
}

function pathIn(folder: string, { name, variant }: PublishedModel): string {
  const paths = readdirSync(folder, { recursive: true, encoding: "utf8" });
  const files = filesIn(folder);
  const isFolder =
    variant === null && paths.some((path) => /^model\.safetensors(\.index\.json)?$/.test(path));
  if (isFolder && files.some(({ path }) => path === "tokenizer.json")) return folder;
  if (isFolder || ggufModels(files).length === 0)
    throw new HubError(`${publishedText({ name, revision: "main", variant })} is not complete.`);
  return join(folder, chooseGguf(name, files, variant)[0]!.path);
}
