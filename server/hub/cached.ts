/** Lists and removes models in the cache. */

import { lstatSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import {
  type PublishedModel,
  publishedText,
  repositoryFolder,
  repositoryName,
} from "../../model/hub-cache.ts";
import { chooseGguf, ggufModels, hasSafetensors, quantOf } from "./choose.ts";
import { HubError } from "./hub-error.ts";

export interface CachedModel {
  /** Name as a user writes it. */
  readonly name: string;
  readonly bytes: number;
  /** Bytes of unfinished downloads. */
  readonly incompleteBytes: number;
  /** Folder or GGUF file. */
  readonly path: string;
  /** Last time that a file was written or read, as far as the file system records it. */
  readonly usedMs: number;
}

interface SnapshotFile {
  /** Path in the snapshot. */
  readonly path: string;
  readonly bytes: number;
  readonly blob: string;
  readonly usedMs: number;
}

/** Models of every snapshot in the cache, most recently used first. */
export function listCached(cache: string): readonly CachedModel[] {
  return foldersIn(cache)
    .flatMap((folder) => {
      const name = repositoryName(folder);
      return name === null ? [] : modelsOf(join(cache, folder), name);
    })
    .toSorted((a, b) => b.usedMs - a.usedMs);
}

/**
 * Removes a model: its repository's folder, or only the files of one snapshot or quant and the contents that
 * no other name needs. Returns the freed bytes. Throws HubError if there is no such model.
 */
export function removeCached(cache: string, model: PublishedModel): number {
  const { name, revision, variant } = model;
  const folder = repositoryFolder(cache, name);
  const before = bytesIn(join(folder, "blobs"));
  const snapshots = foldersIn(join(folder, "snapshots"));
  if (snapshots.length === 0 && before === 0)
    throw new HubError(`${publishedText(model)} is not in ${cache}.`);
  if (variant === null && revision === "main") {
    rmSync(folder, { recursive: true });
    rmSync(join(cache, ".locks", basename(folder)), { recursive: true, force: true });
    return before;
  }
  const commits = revision === "main" ? snapshots : [refsOf(folder).get(revision) ?? revision];
  for (const commit of commits) {
    const snapshot = join(folder, "snapshots", commit);
    const files = filesOf(snapshot);
    if (files.length === 0) throw new HubError(`${publishedText(model)} is not in ${cache}.`);
    const gone = variant === null ? files : chooseGguf(name, files, variant);
    for (const { path } of gone) rmSync(join(snapshot, path));
    if (gone.length === files.length) rmSync(snapshot, { recursive: true });
  }
  const wanted = new Set(
    foldersIn(join(folder, "snapshots")).flatMap((commit) =>
      filesOf(join(folder, "snapshots", commit)).map(({ blob }) => blob),
    ),
  );
  for (const blob of namesIn(join(folder, "blobs"))) {
    if (!wanted.has(blob) && !blob.endsWith(".incomplete")) rmSync(join(folder, "blobs", blob));
  }
  if (wanted.size === 0) rmSync(folder, { recursive: true });
  return before - bytesIn(join(folder, "blobs"));
}

function modelsOf(folder: string, name: string): CachedModel[] {
  const revisions = new Map([...refsOf(folder)].map(([ref, commit]) => [commit, ref]));
  const incompleteBytes = bytesIn(join(folder, "blobs"), (blob) => blob.endsWith(".incomplete"));
  const models = foldersIn(join(folder, "snapshots")).flatMap((commit) => {
    const snapshot = join(folder, "snapshots", commit);
    const revision = revisions.get(commit) ?? commit;
    const files = filesOf(snapshot);
    const entry = (variant: string | null, of: readonly SnapshotFile[], path: string): CachedModel => ({
      name: publishedText({ name, revision, variant }),
      bytes: of.reduce((sum, { bytes }) => sum + bytes, 0),
      incompleteBytes: 0,
      path,
      usedMs: Math.max(...of.map(({ usedMs }) => usedMs)),
    });
    const ggufs = ggufModels(files);
    const others = files.filter(({ path }) => !path.endsWith(".gguf"));
    return [
      ...(hasSafetensors(files) || (ggufs.length === 0 && files.length > 0)
        ? [entry(null, others, snapshot)]
        : []),
      ...ggufs.map((parts) =>
        entry(quantOf(parts[0]!.path) ?? parts[0]!.path, parts, join(snapshot, parts[0]!.path)),
      ),
    ];
  });
  const [first, ...rest] = models;
  if (first !== undefined) return [{ ...first, incompleteBytes }, ...rest];
  if (incompleteBytes === 0) return [];
  return [{ name, bytes: 0, incompleteBytes, path: folder, usedMs: statSync(folder).mtimeMs }];
}

/** Commits of the branches and tags in a repository's folder. */
function refsOf(folder: string): ReadonlyMap<string, string> {
  const refs = join(folder, "refs");
  const paths = namesIn(refs, true).filter((path) => statSync(join(refs, path)).isFile());
  return new Map(paths.map((path) => [path, readFileSync(join(refs, path), "utf8").trim()]));
}

/** Files of a snapshot, without hidden ones, such as packed weights. */
function filesOf(snapshot: string): readonly SnapshotFile[] {
  return namesIn(snapshot, true).flatMap((path) => {
    const file = join(snapshot, path);
    if (/(^|\/)\./.test(path)) return [];
    const stat = statSync(file, { throwIfNoEntry: false });
    if (stat === undefined || !stat.isFile()) return [];
    const blob = lstatSync(file).isSymbolicLink() ? basename(readlinkSync(file)) : path;
    return [{ path, bytes: stat.size, blob, usedMs: Math.max(stat.atimeMs, stat.mtimeMs) }];
  });
}

function bytesIn(folder: string, isWanted: (name: string) => boolean = () => true): number {
  return namesIn(folder)
    .filter(isWanted)
    .reduce((sum, name) => sum + (statSync(join(folder, name), { throwIfNoEntry: false })?.size ?? 0), 0);
}

function foldersIn(folder: string): readonly string[] {
  return namesIn(folder).filter((name) =>
    statSync(join(folder, name), { throwIfNoEntry: false })?.isDirectory(),
  );
}

function namesIn(folder: string, recursive = false): readonly string[] {
  try {
    return readdirSync(folder, { recursive, encoding: "utf8" });
  } catch {
    return [];
  }
}
