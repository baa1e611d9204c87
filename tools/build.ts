/**
 * `npm run build`: dist/bunting, one executable with the runtime, the server, the native libraries and the demo
 * model. An argument names another output file; BUNTING_CUDA_LIBRARY names the library for GPUs, if there is one.
 * Releases name the `--library`, the `--runtime` (a Bun binary) and the `--target` of another platform too.
 */

import { readdirSync, statSync } from "node:fs";
import { basename, join, relative, resolve } from "node:path";
import { parseArgs } from "node:util";
import type { BunPlugin } from "bun";
import { bundlePage } from "../server/http/page-files.ts";

const root = resolve(import.meta.dir, "..");
const { positionals, values } = parseArgs({
  args: process.argv.slice(2),
  allowPositionals: true,
  options: { library: { type: "string" }, runtime: { type: "string" }, target: { type: "string" } },
});
const outfile = resolve(positionals[0] ?? join(root, "dist", "bunting"));
const library = resolve(values.library ?? join(root, "build", "native", "libbunting_cpu.so"));

/** Files to embed: name below the extraction folder → path. */
function filesToEmbed(): Map<string, string> {
  const files = new Map([["libbunting_cpu.so", library]]);
  const { BUNTING_CUDA_LIBRARY: cuda } = process.env;
  if (cuda !== undefined && cuda !== "") files.set("libbunting_cuda.so", resolve(cuda));
  const model = join(root, "models", "demo");
  for (const entry of readdirSync(model, { withFileTypes: true })) {
    if (entry.isFile() && /\.(json|safetensors|jinja)$/.test(entry.name)) {
      files.set(`models/demo/${entry.name}`, join(model, entry.name));
    }
  }
  return files;
}

/**
 * Replacement of server/embedded.ts: imports every file, so that the bundler embeds it, and exports its hash.
 */
async function embeddedModule(files: ReadonlyMap<string, string>): Promise<string> {
  const imports: string[] = [];
  const entries: string[] = [];
  for (const [name, path] of files) {
    const sha256 = new Bun.CryptoHasher("sha256").update(await Bun.file(path).bytes()).digest("hex");
    imports.push(`import file${imports.length} from ${JSON.stringify(path)} with { type: "file" };`);
    entries.push(`  { name: ${JSON.stringify(name)}, sha256: "${sha256}", path: file${entries.length} },`);
  }
  return `${imports.join("\n")}\nexport const embeddedFiles = [\n${entries.join("\n")}\n];\n`;
}

/** Replacement of server/http/page-files.ts: the bundled page. */
async function pageModule(): Promise<string> {
  return `export const bundlePage = async () => ${JSON.stringify(await bundlePage())};\n`;
}

const embedded = await embeddedModule(filesToEmbed());
const page = await pageModule();
const embed: BunPlugin = {
  name: "embedded files",
  setup(build) {
    build.onLoad({ filter: /\/server\/embedded\.ts$/ }, () => ({ contents: embedded, loader: "ts" }));
    build.onLoad({ filter: /\/server\/http\/page-files\.ts$/ }, () => ({ contents: page, loader: "ts" }));
  },
};

/** Thread scripts; each is an entry point beside main.ts, where its URL resolves. */
const workers = readdirSync(join(root, "server"), { recursive: true, encoding: "utf8" }).filter(
  (name) => basename(name) === "worker.ts",
);

// Bytecode needs the ESM format, or the executable finds its Worker only on the build machine. Without the
// autoload flags the executable would execute a bunfig.toml or .env of the current folder.
const result = await Bun.build({
  entrypoints: ["main.ts", ...workers].map((name) => join(root, "server", name)),
  root: join(root, "server"),
  target: "bun",
  format: "esm",
  bytecode: true,
  minify: true,
  plugins: [embed],
  compile: {
    outfile,
    autoloadDotenv: false,
    autoloadBunfig: false,
    ...(values.runtime === undefined ? {} : { executablePath: resolve(values.runtime) }),
    // The bundler writes the target's `process.arch` into the code.
    ...(values.target === undefined ? {} : { target: values.target as Bun.Build.CompileTarget }),
  },
});
for (const log of result.logs) console.error(String(log));
if (!result.success) process.exit(1);
console.log(`${relative(process.cwd(), outfile)}: ${(statSync(outfile).size / 2 ** 20).toFixed(1)} MiB`);
