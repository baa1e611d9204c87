import { basename, join } from "node:path";

/** File of the page at `/`, in the form sent to a browser. */
export interface PageFile {
  /** "index.html", or a name that changes with the content. */
  readonly name: string;
  readonly type: string;
  readonly content: string;
}

/** Folder of the other files, relative to index.html. */
const FILES_FOLDER = "page/";

/**
 * Bundles server/web for browsers. The executable has no sources: tools/build.ts bundles at build time, and
 * replaces this module by one that holds the result.
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
