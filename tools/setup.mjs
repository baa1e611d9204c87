// Prepares a checkout for the server: packages, the Bun binary, the native library. Each part does nothing if
// it is up to date. Plain Node, because nothing is installed before this runs.

import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { fetchNvcc, findNvcc, nvccVersion } from "./cuda-toolkit.mjs";
import { buildNative, CPU_HERE, CUDA_HERE } from "./native.mjs";
import { lastLines, runQuietly, runs, SetupError } from "./process.mjs";

export const root = dirname(dirname(fileURLToPath(import.meta.url)));
export const bun = join(root, "node_modules", "bun", "bin", "bun.exe"); // its name on every platform

/** Sets up everything; `targets` are the native targets to build (none: all). */
export async function setUp(targets = []) {
  const problem = platformProblem(process.platform, process.arch);
  if (problem !== null) throw new SetupError(problem);
  await installPackages();
  await installBun();
  await buildNative(targets);
}

/** Reason why Bunting cannot run here; null if it can. */
export function platformProblem(platform, arch) {
  if (platform === "linux" && (arch === "x64" || arch === "arm64")) return null;
  return `Bunting runs on Linux on x64 or arm64; this is ${platform} on ${arch}.`;
}

/** Runs `npm ci`, unless node_modules matches the lock file. */
export async function installPackages() {
  const reason = packagesStale();
  if (reason === null) return;
  console.log(`Installing packages (${reason}) …`);
  const npm = process.env.npm_execpath;
  const [command, args] = npm?.endsWith(".js") ? [process.execPath, [npm, "ci"]] : ["npm", ["ci"]];
  const { code, output } = await runQuietly(command, args);
  if (code === 0) return;
  throw new SetupError(
    `${lastLines(output, 20)}\n\n\`npm ci\` failed (exit code ${code}): see the lines above.`,
  );
}

/** Reason why the installed packages differ from the lock file; null if they match. */
function packagesStale() {
  const wanted = readLock(join(root, "package-lock.json"));
  const found = readLock(join(root, "node_modules", ".package-lock.json"));
  if (wanted === null)
    throw new SetupError("package-lock.json is missing or not JSON: is this a whole checkout?");
  if (found === null) return "none yet";
  for (const [path, entry] of Object.entries(wanted)) {
    if (path === "") continue;
    const name = path.slice("node_modules/".length);
    const installed = found[path];
    const isThere = installed !== undefined && existsSync(join(root, path));
    if (!isThere && (installed !== undefined || !entry.optional)) return `${name} is missing`;
    if (isThere && installed.version !== entry.version)
      return `${name} is ${installed.version}, not ${entry.version}`;
  }
  return null;
}

/** Packages of a lock file by path; null if the file is unreadable. */
function readLock(file) {
  try {
    return JSON.parse(readFileSync(file, "utf8")).packages ?? null;
  } catch {
    return null;
  }
}

/** Runs Bun's install script, which fetches or links its binary; npm may be configured to skip it. */
async function installBun() {
  if (runs(bun, ["--version"])) return;
  const script = join(root, "node_modules", "bun", "install.js");
  const { code, output } = await runQuietly(process.execPath, [script], { cwd: dirname(script) });
  if (code === 0 && runs(bun, ["--version"])) return;
  throw new SetupError(`${lastLines(output, 10)}\n\nThe Bun binary at ${bun} does not run on this machine.`);
}

/**
 * Sets up what `npm start` needs: the engine for this processor and, if there are a GPU and an nvcc, the engine
 * for that GPU. A failure of the latter is reported, and the CPU serves.
 */
export async function setUpHere() {
  await setUp([CPU_HERE]);
  const report = await gpusHere();
  if (report.gpus.length === 0) return;
  const nvcc = findNvcc();
  if (nvcc === null) return; // the server names the command that fetches one
  try {
    await buildForGpus(report, nvcc);
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    console.error(`${error.message}\nThe GPU is not used.\n`);
  }
}

/** Builds the engine for the GPUs of this machine. */
async function buildForGpus({ gpus, cuda }, nvcc) {
  const version = await nvccVersion(nvcc);
  if (Math.floor(version / 10) > Math.floor(cuda / 10)) {
    throw new SetupError(
      `The NVIDIA driver speaks CUDA ${versionText(cuda)}, too old for what nvcc ${versionText(version)} makes: ` +
        "update the driver, or let BUNTING_NVCC name the nvcc of an older toolkit (12.8 or 12.9).",
    );
  }
  const capabilities = [...new Set(gpus.map(({ capability }) => capability))].sort((a, b) => a - b);
  await buildNative([CPU_HERE, CUDA_HERE], { options: [`-DBUNTING_CUDA_HERE=${capabilities.join(";")}`] });
}

function versionText(tenths) {
  return `${Math.floor(tenths / 10)}.${tenths % 10}`;
}

/** The driver's GPUs, a DriverReport of gpu/cuda-driver.ts. */
async function gpusHere() {
  const { code, output } = await runQuietly(bun, [join(root, "tools", "gpus.ts")]);
  if (code !== 0) throw new SetupError(`${output}\nAsking for GPUs failed.`);
  return JSON.parse(output);
}

/**
 * `npm run setup`: sets up what `npm start` needs and starts nothing. With --cuda it fetches nvcc, if there is
 * none, and builds the engine for the GPUs of this machine.
 */
export async function main(args = []) {
  const other = args.find((argument) => argument !== "--cuda");
  if (other !== undefined) throw new SetupError(`${other} is unknown; npm run setup takes only -- --cuda.`);
  if (!args.includes("--cuda")) {
    await setUpHere();
    return 0;
  }
  await setUp([CPU_HERE]);
  const report = await gpusHere();
  if (report.problem !== null) throw new SetupError(`No GPU can be used: ${report.problem}.`);
  await buildForGpus(report, findNvcc() ?? (await fetchNvcc()));
  console.log("The engine for the GPU is built: npm start uses it.");
  return 0;
}
