/**
 * Finds downloaded models in Hugging Face's cache by their published names (`hf download Qwen/Qwen3-0.6B`).
 */
import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join, resolve, sep } from "node:path";

/** Published name that a user may write in place of a path. */
export interface PublishedModel {
  /** Repository, as in Qwen/Qwen3-0.6B. */
  readonly name: string;
  /** Part of the name of one of its GGUF files, as in unsloth/Qwen3-0.6B-GGUF:Q4_K_M. */
  readonly variant: string | null;
}

/** Parses a published name or the address of the model's page; null for anything else. */
export function readPublishedName(text: string): PublishedModel | null {
  const found =
    /^(?:(?:https?:\/\/)?(?:huggingface\.co|hf\.co)\/)?(\w[\w.-]*\/\w[\w.-]*)(?::([\w.-]+))?$/.exec(text);
  return found === null || text.endsWith(".gguf") ? null : { name: found[1]!, variant: found[2] ?? null };
}

/** Folder of a downloaded model at the commit of its branch `main` at download; null if absent. */
export function downloadedFolder(name: string): string | null {
  const folder = join(cacheFolder(process.env), `models--${name.replace("/", "--")}`);
  try {
    const commit = readFileSync(join(folder, "refs", "main"), "utf8").trim();
    const snapshot = join(folder, "snapshots", commit);
    return existsSync(snapshot) ? snapshot : null;
  } catch {
    return null;
  }
}

/** Published name of a model whose path lies in the cache; null elsewhere. */
export function publishedNameOf(path: string): string | null {
  const parts = resolve(path).split(sep);
  const repository = parts[parts.lastIndexOf("snapshots") - 1];
  const found = /^models--([\w.-]+?)--([\w.-]+)$/.exec(repository ?? "");
  return found === null ? null : `${found[1]}/${found[2]}`;
}

/** Cache folder, by the rules of huggingface_hub. */
function cacheFolder({ HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME }: NodeJS.ProcessEnv): string {
  if (HF_HUB_CACHE) return HF_HUB_CACHE;
  return join(HF_HOME || join(XDG_CACHE_HOME || join(homedir(), ".cache"), "huggingface"), "hub");
}
