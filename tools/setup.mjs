// Prepares a checkout for the server: packages, the Bun binary, the native library. Each part does nothing if
// it is up to date. Plain Node, because nothing is installed before this runs.

import { spawn, spawnSync } from "node:child_process";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism, totalmem } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = dirname(dirname(fileURLToPath(import.meta.url)));
export const bun = join(root, "node_modules", "bun", "bin", "bun.exe"); // its name on every platform
export const nativeBuild = join(root, "build", "native");

export const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"];

/** Failure that is one sentence for people; printed without a stack. */
export class SetupError extends Error {
  name = "SetupError";
}

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
 * Configures the build once, then lets the build system find stale parts. Builds with other cmake `options`
 * use another folder; `how` ends their messages.
 */
export async function buildNative(targets, { folder = nativeBuild, options = [], how = "" } = {}) {
  if (!runs("cmake", ["--version"])) {
    throw new SetupError("cmake is missing: install it (Debian: apt install cmake g++) and try again.");
  }
  const cache = join(folder, "CMakeCache.txt");
  const source = join(root, "csrc");
  // A moved checkout has a cache with its old path, which cmake refuses.
  const moved =
    existsSync(cache) && !readFileSync(cache, "utf8").includes(`CMAKE_HOME_DIRECTORY:INTERNAL=${source}\n`);
  if (moved) rmSync(folder, { recursive: true });

  if (!existsSync(join(folder, "Makefile"))) {
    const compiler =
      process.env.CXX?.split(" ")[0] ?? ["c++", "g++", "clang++"].find((name) => runs(name, ["--version"]));
    if (compiler === undefined || !runs(compiler, ["--version"])) {
      throw new SetupError(
        "No C++ compiler found: install g++ 11 or newer (Debian: apt install g++) and try again.",
      );
    }
    const args = ["-S", source, "-B", folder, "-G", "Unix Makefiles", "-DCMAKE_BUILD_TYPE=Release"];
    await build("cmake", [...args, ...options], `configuring the native engine${how}`);
  }
  // Compiling a large kernel file takes up to about 1 GiB.
  const jobs = Math.max(1, Math.min(availableParallelism(), Math.floor(totalmem() / 2 ** 30)));
  const args = ["--build", folder, "-j", String(jobs)];
  if (targets.length > 0) args.push("--target", ...targets);
  await build("cmake", args, `building the native engine${how}`);
}

/** Runs a build command; shows progress only if there is work to do. */
async function build(command, args, what) {
  let told = false;
  const { code, output } = await runQuietly(command, args, {
    onLine: (line) => {
      if (!told && /Building|Linking|Configuring|The CXX compiler/.test(line)) {
        console.log(`${what[0].toUpperCase()}${what.slice(1)} …`);
        told = true;
      }
      if (told && process.stdout.isTTY && /^\[ *\d+%\]/.test(line)) process.stdout.write(`\r\x1b[K${line}`);
    },
  });
  if (process.stdout.isTTY && told) process.stdout.write("\r\x1b[K");
  if (code !== 0)
    throw new SetupError(`${lastLines(output, 40)}\n\n${what} failed (exit code ${code}): see above.`);
}

/** True if a command starts and succeeds. */
function runs(command, args) {
  return spawnSync(command, args, { stdio: "ignore" }).status === 0;
}

/**
 * Runs a command in the project root and returns its output for error messages. A signal ends the command and
 * then this process.
 */
function runQuietly(command, args, { cwd = root, onLine = () => {} } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, stdio: ["ignore", "pipe", "pipe"] });
    const stop = (signal) => {
      child.kill(signal);
      reject(new SetupError(`Stopped by ${signal}.`));
    };
    for (const signal of SIGNALS) process.on(signal, stop);
    let output = "";
    const take = (bytes) => {
      output += bytes;
      for (const line of String(bytes).split("\n")) onLine(line);
    };
    const end = (result) => {
      for (const signal of SIGNALS) process.off(signal, stop);
      resolve(result);
    };
    child.stdout.on("data", take);
    child.stderr.on("data", take);
    child.on("error", (error) => end({ code: 127, output: String(error.message) }));
    child.on("close", (code) => end({ code: code ?? 1, output }));
  });
}

function lastLines(text, count) {
  return text.trimEnd().split("\n").slice(-count).join("\n");
}

/** `npm run setup`: sets up everything and starts nothing. */
export async function main() {
  await setUp();
  return 0;
}
