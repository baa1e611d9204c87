import { basename, join } from "node:path";

/** A file of the page at `/`, as a browser gets it. */
export interface PageFile {
  /** "index.html", or a name that changes with the content. */
  readonly name: string;
  readonly type: string;
  readonly content: string;
}

/** Where index.html looks for the other files, relative to itself. */
const FILES_FOLDER = "page/";

/**
 * Bundles server/web for browsers. The executable has no sources: tools/build.ts bundles while it builds, and puts a
 * module in the place of this one that holds the outcome.
 */
export async function bundlePage(): Promise<readonly PageFile[]> {
  const { outputs } = await Bun.build({
    entrypoints: [join(import.meta.dir, "..", "web", "index.html")],
    target: "browser",
    minify: true,
    publicPath: FILES_FOLDER,
  });
  return Promise.all(
    outputs.map(async (file) => ({ name: basename(file.path), type: file.type, content: await file.text() })),
  );
}
