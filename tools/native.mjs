// Builds the native libraries with cmake: for this machine alone (`npm start`), or for all (`npm run build`, tests).
// Both share one folder and their objects, so nothing is compiled twice.

import { existsSync, mkdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { availableParallelism, totalmem } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { findNvcc } from "./cuda-toolkit.mjs";
import { lastLines, runQuietly, runs, SetupError } from "./process.mjs";
import { filesToBuild, Progress } from "./progress.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const source = join(root, "csrc");
export const nativeBuild = join(root, "build", "native");

/** Targets with the engines for this machine alone. */
export const CPU_HERE = "bunting_cpu_here";
export const CUDA_HERE = "bunting_cuda_here";

/**
 * Builds `targets` (none: all). The build system finds stale parts. Builds with other cmake `options` use
 * another folder; `how` ends their messages.
 */
export async function buildNative(targets, { folder = nativeBuild, options = [], how = "" } = {}) {
  if (!runs("cmake", ["--version"])) {
    throw new SetupError("cmake is missing: install it (Debian: apt install cmake g++) and try again.");
  }
  const isHere = targets.includes(CPU_HERE);
  const levels = isHere ? await levelsHere(folder) : null;
  const nvcc = findNvcc();
  await configure(folder, [
    ...(levels === null ? [] : [`-DBUNTING_HERE=${levels}`]),
    ...(nvcc?.startsWith("/") ? [`-DBUNTING_NVCC=${nvcc}`] : []),
    ...options,
  ]);
  const forGpus = targets.includes(CUDA_HERE) ? "s for this processor and these GPUs" : " for this processor";
  const what = isHere ? `the engine${forGpus} (${levels.split(";")[0]})` : `the native engine${how}`;
  await build(folder, targets, what);
}

/** Configures the build, unless it already is with these options. */
async function configure(folder, options) {
  // A moved checkout has a cache with its old path, which cmake refuses.
  const cache = readCache(folder);
  const isMoved = cache !== null && !cache.includes(`CMAKE_HOME_DIRECTORY:INTERNAL=${source}\n`);
  if (isMoved) rmSync(folder, { recursive: true });
  const isConfigured = !isMoved && existsSync(join(folder, "Makefile"));
  const has = (option) => {
    const [name, value] = option.slice(2).split("=");
    return cache.split("\n").some((line) => line.startsWith(`${name}:`) && line.endsWith(`=${value}`));
  };
  if (isConfigured && options.every(has)) return;
  compiler();
  const launcher =
    !isConfigured && runs("ccache", ["--version"]) ? ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] : [];
  const args = ["-S", source, "-B", folder, "-G", "Unix Makefiles", "-DCMAKE_BUILD_TYPE=Release"];
  const { code, output } = await runQuietly("cmake", [...args, ...launcher, ...options]);
  if (code !== 0) {
    throw new SetupError(`${lastLines(output, 40)}\n\nConfiguring the native engine failed: see above.`);
  }
}

function readCache(folder) {
  const file = join(folder, "CMakeCache.txt");
  return existsSync(file) ? readFileSync(file, "utf8") : null;
}

/** Name of the C++ compiler. */
function compiler() {
  const asked = process.env.CXX?.split(" ")[0];
  const found = (asked === undefined ? ["c++", "g++", "clang++"] : [asked]).find((name) =>
    runs(name, ["--version"]),
  );
  if (found !== undefined) return found;
  throw new SetupError(
    "No C++ compiler found: install g++ 11 or newer (Debian: apt install g++) and try again.",
  );
}

/** Instruction sets that this machine uses, best first: "avx512;avx512_vnni;avx2;portable". */
async function levelsHere(folder) {
  const program = join(folder, "probe");
  const sources = ["probe/main.cpp", "host/cpu_features.cpp"].map((file) => join(source, file));
  const isStale = (file) => statSync(file).mtimeMs > statSync(program).mtimeMs;
  if (!existsSync(program) || sources.some(isStale)) {
    mkdirSync(folder, { recursive: true });
    const args = ["-std=c++20", `-I${source}`, ...sources, "-o", program];
    const { code, output } = await runQuietly(compiler(), args);
    if (code !== 0) {
      throw new SetupError(`${lastLines(output, 20)}\n\nCompiling ${basename(program)} failed: see above.`);
    }
  }
  const { code, output } = await runQuietly(program, []);
  if (code !== 0) throw new SetupError(`${program} failed (exit code ${code}).\n${output}`);
  return output.trim();
}

/** Runs the build, and shows its progress if there is work to do. */
async function build(folder, targets, what) {
  // Compiling a large kernel file takes up to about 1 GiB.
  const jobs = Math.max(1, Math.min(availableParallelism(), Math.floor(totalmem() / 2 ** 30)));
  const args = ["--build", folder, "-j", String(jobs)];
  if (targets.length > 0) args.push("--target", ...targets);
  const planned = await runQuietly("cmake", [...args, "--", "-n", "-k"]);
  const progress = new Progress(folder, filesToBuild(planned.output), jobs);
  if (progress.files > 0) {
    const cores = jobs === 1 ? "one core" : `${jobs} cores`;
    console.log(
      `Building ${what}: ${progress.files} files on ${cores}. Later starts compile only what changed.`,
    );
  }
  progress.start();
  const { code, output } = await runQuietly("cmake", args, { onLine: (line) => progress.onLine(line) });
  progress.end();
  if (code !== 0) {
    throw new SetupError(
      `${lastLines(output, 40)}\n\nBuilding ${what} failed (exit code ${code}): see above.`,
    );
  }
}
