/**
 * Files inside the executable. In a source tree there are none; tools/build.ts puts another module in the place of
 * this one that names them.
 */

export interface EmbeddedFile {
  /** Path below the extraction folder: "libbunting_cpu.so", "models/demo/config.json". */
  readonly name: string;
  readonly sha256: string;
  /** Where Bun reads it inside the executable. */
  readonly path: string;
}

export const embeddedFiles: readonly EmbeddedFile[] | null = null;
