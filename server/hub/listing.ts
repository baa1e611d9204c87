/** Files of a repository at one commit. Unsafe paths in the hub's response are dropped. */

import type { PublishedModel } from "../../model/hub-cache.ts";
import { isObject } from "../../model/json.ts";
import type { HubClient } from "./client.ts";
import { HubError } from "./hub-error.ts";

export interface HubFile {
  /** Path in the repository: plain names with slashes between them. */
  readonly path: string;
  readonly bytes: number;
  /** Hash of the content: sha256 of a large file (LFS), else that of a git blob. */
  readonly hash: { readonly kind: "sha256" | "git"; readonly hex: string };
}

export interface Listing {
  /** Commit that the branch or tag pointed to when it was listed. */
  readonly commit: string;
  readonly files: readonly HubFile[];
}

const COMMIT = /^[0-9a-f]{40}$/;
const SHA256 = /^[0-9a-f]{64}$/;
/** Path whose parts begin with a word character, so none is `..` or hidden. */
const PATH = /^\w[\w.+@ -]*(\/\w[\w.+@ -]*)*$/;
const FILES_MAX = 100_000;

/**
 * Lists the files of a revision. All later requests name its commit, so a moved branch does not mix versions.
 */
export async function listFiles(
  client: HubClient,
  { name, revision }: Pick<PublishedModel, "name" | "revision">,
  signal: AbortSignal,
): Promise<Listing> {
  const api = `${client.settings.endpoint}/api/models/${name}`;
  const { value } = await client.json(`${api}/revision/${encodeURIComponent(revision)}`, signal);
  const commit = isObject(value) ? value.sha : undefined;
  if (typeof commit !== "string" || !COMMIT.test(commit))
    throw new HubError(`${client.settings.endpoint} names no commit for ${name} at ${revision}.`);
  const files: HubFile[] = [];
  for (let page: string | null = `${api}/tree/${commit}?recursive=true`; page !== null; ) {
    const { value, next }: { value: unknown; next: string | null } = await client.json(page, signal);
    if (!Array.isArray(value)) throw new HubError(`${page} does not answer with a list of files.`);
    files.push(...value.map(fileOf).filter((file) => file !== null));
    if (files.length > FILES_MAX) throw new HubError(`${name} has more than ${FILES_MAX} files.`);
    page = next === page ? null : next;
  }
  return { commit, files };
}

function fileOf(entry: unknown): HubFile | null {
  if (!isObject(entry) || entry.type !== "file") return null;
  const { path, lfs } = entry;
  const isLarge = isObject(lfs);
  const bytes = isLarge ? lfs.size : entry.size;
  const hex = isLarge ? (lfs.oid ?? lfs.sha256) : entry.oid;
  if (typeof path !== "string" || path.length > 512 || !PATH.test(path)) return null;
  if (typeof bytes !== "number" || !Number.isSafeInteger(bytes) || bytes < 0) return null;
  if (typeof hex !== "string" || !(isLarge ? SHA256 : COMMIT).test(hex)) return null;
  return { path, bytes, hash: { kind: isLarge ? "sha256" : "git", hex } };
}
