/** Snapshots of the cache: relative links from file names to contents, and the commits of branches. */

import { lstatSync, mkdirSync, readlinkSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { type PublishedModel, repositoryFolder } from "../../model/hub-cache.ts";
import { blobPath } from "./blob.ts";
import type { HubFile } from "./listing.ts";

/** Path of a file in the snapshot of a commit. */
export function snapshotPath(cache: string, repository: string, commit: string, path: string): string {
  return join(repositoryFolder(cache, repository), "snapshots", commit, path);
}

/** Links a file's name to its content. */
export function linkFile(cache: string, repository: string, commit: string, file: HubFile): void {
  const link = snapshotPath(cache, repository, commit, file.path);
  mkdirSync(dirname(link), { recursive: true });
  const target = relative(dirname(link), blobPath(cache, repository, file));
  const before = lstatSync(link, { throwIfNoEntry: false });
  if (before?.isSymbolicLink() && readlinkSync(link) === target) return;
  // A rename replaces an existing link atomically, even while another process does the same.
  const made = `${link}.${process.pid}.${crypto.randomUUID().slice(0, 8)}`;
  symlinkSync(target, made);
  try {
    renameSync(made, link);
  } catch (error) {
    rmSync(made, { force: true });
    throw error;
  }
}

/** Records the commit of a branch or tag. */
export function writeRef(
  cache: string,
  { name, revision }: Pick<PublishedModel, "name" | "revision">,
  commit: string,
): void {
  if (revision === commit) return;
  const ref = join(repositoryFolder(cache, name), "refs", revision);
  mkdirSync(dirname(ref), { recursive: true });
  const made = `${ref}.${process.pid}.${crypto.randomUUID().slice(0, 8)}`;
  writeFileSync(made, commit);
  renameSync(made, ref);
}
