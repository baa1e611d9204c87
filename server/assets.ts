/**
 * Native libraries and demo model as files on disk. A source tree has them in build/native and models/demo.
 * The executable contains them and extracts them, once per version, to a folder of the user's cache. Every
 * start verifies them, so that a damaged or foreign file is replaced and never loaded.
 */

import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { ConfigError } from "./config.ts";
import { type EmbeddedFile, embeddedFiles } from "./embedded.ts";

/** Implementations of csrc/include/engine.h. */
export type EngineLibrary = "cpu" | "cuda" | "emu";
const DEMO_MODEL = "models/demo";

/**
 * Path of a native library. The file is missing if the build has none of the kind. BUNTING_CUDA_LIBRARY names
 * another one for GPUs; else an executable without one takes that of the package beside it.
 */
export async function libraryPath(kind: EngineLibrary): Promise<string> {
  const file = `libbunting_${kind}.so`;
  const { BUNTING_CUDA_LIBRARY: asked } = process.env;
  if (kind === "cuda" && asked !== undefined && asked !== "") {
    if (existsSync(asked)) return asked;
    throw new ConfigError(`BUNTING_CUDA_LIBRARY names ${asked}, which does not exist`);
  }
  if (embeddedFiles !== null) {
    const isEmbedded = embeddedFiles.some(({ name }) => name === file);
    if (!isEmbedded) return libraryBeside(realpathSync(process.execPath), file);
    return join(await extract(embeddedFiles, (name) => name === file), file);
  }
  const folders = { cpu: [".", "here"], cuda: ["cuda", "here"], emu: ["cuda"] }[kind];
  return newest(folders.map((folder) => join(sourceRoot(), "build", "native", folder, file)));
}

/** Path of a library that was installed with an executable: in its folder, or in lib/bunting of its prefix. */
export function libraryBeside(executable: string, file: string): string {
  const folder = dirname(executable);
  const beside = join(folder, file);
  return existsSync(beside) ? beside : join(dirname(folder), "lib", "bunting", file);
}

/** The file that was built last: for all machines or, by `npm start`, for this one; the first if there is none. */
export function newest(files: readonly string[]): string {
  const builtMs = (file: string): number => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  return files.reduce((best, file) => (builtMs(file) > builtMs(best) ? file : best));
}

/** Folder of the model that comes with Bunting. */
export async function demoModelFolder(): Promise<string> {
  if (embeddedFiles === null) return join(sourceRoot(), DEMO_MODEL);
  return join(await extract(embeddedFiles, (name) => name.startsWith(`${DEMO_MODEL}/`)), DEMO_MODEL);
}

/** True in the executable, false in a source tree. */
export const isExecutable = embeddedFiles !== null;

function sourceRoot(): string {
  return dirname(import.meta.dir);
}

/** Ensures that the chosen files are on disk, and returns their folder. */
async function extract(files: readonly EmbeddedFile[], isWanted: (name: string) => boolean): Promise<string> {
  const manifest = files.map(({ name, sha256 }) => `${sha256}  ${name}\n`).join("");
  const version = hash(manifest);
  const reasons: string[] = [];
  for (const root of cacheFolders()) {
    try {
      return await extractTo(
        root,
        version,
        files.filter(({ name }) => isWanted(name)),
      );
    } catch (error) {
      reasons.push(`${root}: ${error instanceof Error ? error.message : error}`);
    }
  }
  throw new ConfigError(
    `No folder to put the native library and the model in; set XDG_CACHE_HOME to one that can be written.\n${reasons.join("\n")}`,
  );
}

/** Extracts missing files below root/version and returns that folder. */
export async function extractTo(
  root: string,
  version: string,
  files: readonly EmbeddedFile[],
): Promise<string> {
  const folder = join(root, version);
  for (const path of [root, folder]) {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    mustBePrivate(path);
  }
  for (const file of files) {
    const target = join(folder, file.name);
    if (await isIntact(target, file.sha256)) continue;
    mkdirSync(dirname(target), { recursive: true, mode: 0o700 });
    const bytes = await Bun.file(file.path).bytes();
    if (hash(bytes) !== file.sha256) throw new Error(`${file.name} inside the executable is damaged`);
    // Another process may extract at the same moment: each writes its own file, and the rename is atomic.
    const temporary = `${target}.${process.pid}.${crypto.randomUUID()}`;
    try {
      await Bun.write(temporary, bytes);
      chmodSync(temporary, 0o600);
      renameSync(temporary, target);
    } finally {
      rmSync(temporary, { force: true });
    }
  }
  return folder;
}

/** Folders for extraction, best first. */
function cacheFolders(): string[] {
  const { XDG_CACHE_HOME: cache, HOME: home } = process.env;
  const folders: string[] = [];
  if (cache?.startsWith("/")) folders.push(join(cache, "bunting"));
  if (home?.startsWith("/")) folders.push(join(home, ".cache", "bunting"));
  folders.push(join(tmpdir(), `bunting-${process.getuid?.() ?? 0}`));
  return folders;
}

/**
 * Throws if the folder belongs to, or is writable by, other users: they could swap a library between its
 * check and its loading. A link owned by another user throws too.
 */
function mustBePrivate(folder: string): void {
  const { uid, mode } = statSync(folder);
  if (uid !== process.getuid?.() || lstatSync(folder).uid !== uid)
    throw new Error(`${folder} belongs to another user`);
  if ((mode & 0o022) !== 0) throw new Error(`${folder} can be written by other users`);
}

async function isIntact(path: string, sha256: string): Promise<boolean> {
  const file = Bun.file(path);
  return (await file.exists()) && hash(await file.bytes()) === sha256;
}

function hash(content: string | Uint8Array): string {
  return new Bun.CryptoHasher("sha256").update(content).digest("hex");
}
