/**
 * Hugging Face's cache on disk, as its own clients lay it out, and the published names of the models in it.
 */
import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join, resolve, sep } from "node:path";

/** Published name that a user may write in place of a path: `<repository>[@revision][:file or quant]`. */
export interface PublishedModel {
  /** Repository, as in Qwen/Qwen3-0.6B. */
  readonly name: string;
  /** Branch, tag or commit. */
  readonly revision: string;
  /** GGUF file or a part of its name, as in unsloth/Qwen3-0.6B-GGUF:Q4_K_M; null for none. */
  readonly variant: string | null;
}

const NAME =
  /^(?:(?:https?:\/\/)?(?:huggingface\.co|hf\.co)\/)?(\w[\w.-]*\/\w[\w.-]*)(?:@(\w[\w.-]*(?:\/\w[\w.-]*)*))?(?::(\w[\w.-]*(?:\/\w[\w.-]*)*))?$/;

/** Parses a published name or the address of the model's page; null for anything else. */
export function readPublishedName(text: string): PublishedModel | null {
  const [, name, revision = "main", variant = null] = NAME.exec(text) ?? [];
  return name === undefined || name.endsWith(".gguf") ? null : { name, revision, variant };
}

/** Folder of a repository in the cache. */
export function repositoryFolder(cache: string, name: string): string {
  return join(cache, `models--${name.replace("/", "--")}`);
}

/** Snapshot of a revision as it was at download; null if absent. */
export function snapshotFolder(
  cache: string,
  { name, revision }: Pick<PublishedModel, "name" | "revision">,
): string | null {
  const folder = repositoryFolder(cache, name);
  try {
    const isCommit = /^[0-9a-f]{40}$/.test(revision);
    const commit = isCommit ? revision : readFileSync(join(folder, "refs", revision), "utf8").trim();
    const snapshot = join(folder, "snapshots", commit);
    return commit !== "" && existsSync(snapshot) ? snapshot : null;
  } catch {
    return null;
  }
}

/** Published name of a model whose path lies in the cache; null elsewhere. */
export function publishedNameOf(path: string): string | null {
  const parts = resolve(path).split(sep);
  const repository = parts[parts.lastIndexOf("snapshots") - 1];
  return repositoryName(repository ?? "");
}

/** Name of the repository that a folder of the cache holds; null for other folders. */
export function repositoryName(folder: string): string | null {
  const found = /^models--([\w.-]+?)--([\w.-]+)$/.exec(folder);
  return found === null ? null : `${found[1]}/${found[2]}`;
}

/** Home of Hugging Face's clients, by their rules. */
export function hubHome({ HF_HOME, XDG_CACHE_HOME }: NodeJS.ProcessEnv): string {
  return HF_HOME || join(XDG_CACHE_HOME || join(homedir(), ".cache"), "huggingface");
}

/** Cache folder, by the rules of Hugging Face's clients. */
export function hubCache(env: NodeJS.ProcessEnv): string {
  return env.HF_HUB_CACHE || env.HUGGINGFACE_HUB_CACHE || join(hubHome(env), "hub");
}

/** A published name as a user writes it. */
export function publishedText({ name, revision, variant }: PublishedModel): string {
  return `${name}${revision === "main" ? "" : `@${revision}`}${variant === null ? "" : `:${variant}`}`;
}
