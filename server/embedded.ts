/**
 * Files inside the executable; none in a source tree. tools/build.ts replaces this module by one that names
 * them.
 */

export interface EmbeddedFile {
  /** Path below the extraction folder: "libbunting_cpu.so", "models/demo/config.json". */
  readonly name: string;
  readonly sha256: string;
  /** Path under which Bun reads the file inside the executable. */
  readonly path: string;
}

export const embeddedFiles: readonly EmbeddedFile[] | null = null;
