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
    splitting: true, // libraries that only some answers need are loaded when one does
    publicPath: "./",
    define: { "process.env.NODE_ENV": '"production"' },
  });
  return Promise.all(
    outputs.map(async (file) => {
      const content = await file.text();
      const name = basename(file.path);
      const isEntry = name === "index.html";
      // Scripts name each other in their folder; index.html is above it.
      return {
        name,
        type: file.type,
        content: isEntry ? content.replaceAll('="./', `="${FILES_FOLDER}`) : content,
      };
    }),
  );
}
