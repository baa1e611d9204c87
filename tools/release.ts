/** Packages that need neither compiler nor source tree, as packaging/README.md describes them. */

import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join, relative, resolve } from "node:path";
import { parseArgs } from "node:util";
import packageJson from "../package.json" with { type: "json" };
import { findNvcc, nvccVersion, oldestDriver } from "./cuda-toolkit.mjs";

const root = resolve(import.meta.dir, "..");
const { version } = packageJson;

interface Platform {
  /** Name in file names; npm's platform and architecture. */
  readonly name: string;
  readonly cpu: "x64" | "arm64";
  /** Folder of the executable, as packaging/Dockerfile names it. */
  readonly dockerName: string;
  readonly libc: "glibc" | "musl";
  /** zig's target, with the oldest glibc that the library runs on. */
  readonly target: string;
  /** npm package with the Bun binary; for x64 the one that needs no AVX2. */
  readonly runtime: string;
}

const platforms: readonly Platform[] = [
  {
    name: "linux-x64",
    dockerName: "amd64",
    cpu: "x64",
    libc: "glibc",
    target: "x86_64-linux-gnu.2.28",
    runtime: "bun-linux-x64-baseline",
  },
  {
    name: "linux-x64-musl",
    dockerName: "amd64-musl",
    cpu: "x64",
    libc: "musl",
    target: "x86_64-linux-musl",
    runtime: "bun-linux-x64-musl-baseline",
  },
  {
    name: "linux-arm64",
    dockerName: "arm64",
    cpu: "arm64",
    libc: "glibc",
    target: "aarch64-linux-gnu.2.28",
    runtime: "bun-linux-aarch64",
  },
  {
    name: "linux-arm64-musl",
    dockerName: "arm64-musl",
    cpu: "arm64",
    libc: "musl",
    target: "aarch64-linux-musl",
    runtime: "bun-linux-aarch64-musl",
  },
];

/** Platform with a package for its GPUs, which contains the CUDA engine alone; its name. */
const cudaPlatform = platforms[0]!;
const cudaName = `${cudaPlatform.name}-cuda`;

const { positionals, values } = parseArgs({
  args: process.argv.slice(2),
  allowPositionals: true,
  options: {
    out: { type: "string", default: join(root, "dist", "release") },
    // Uses these libraries and Bun instead of building and fetching them, for tests of one platform.
    library: { type: "string" },
    "cuda-library": { type: "string" },
    runtime: { type: "string" },
  },
});
const out = resolve(values.out);
const cache = join(root, "build", "release");

/** Fields that all npm packages share. */
const about = { version, license: packageJson.license };

const nvcc = findNvcc();
const names = positionals.filter((name) => name !== cudaName);
const chosen = positionals.length === 0 ? platforms : names.map(platformOf);
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
for (const platform of chosen) {
  console.log(`${platform.name} …`);
  const folder = join(out, "executables", platform.dockerName);
  mkdirSync(folder, { recursive: true });
  const library = values.library ?? buildLibrary(platform);
  const runtime = values.runtime ?? fetchRuntime(platform);
  const executable = join(folder, "bunting");
  const script = join(root, "tools", "build.ts");
  const target = `bun-linux-${platform.cpu}${platform.libc === "musl" ? "-musl" : ""}`;
  const options = ["--library", library, "--runtime", runtime, "--target", target];
  run([process.execPath, script, executable, ...options]);
  writeArchive(platform.name, { bunting: executable, ...packagingFiles("bunting.service") });
  writePlatformPackage(platform, {}, { bunting: executable });
}
if (positionals.length === 0 && nvcc === null && values["cuda-library"] === undefined) {
  console.log(`${cudaName} is left out: there is no nvcc. BUNTING_NVCC names one (docs/gpu.md).`);
} else if (positionals.length === 0 || positionals.includes(cudaName)) {
  console.log(`${cudaName} …`);
  await writeCuda(values["cuda-library"] ?? buildLibrary(cudaPlatform, "cuda"));
}
writeMainPackage();
const packaging = join(root, "packaging");
for (const name of ["Dockerfile", "compose.yaml", "compose"]) {
  cpSync(join(packaging, name), join(out, name), { recursive: true });
}
writeChecksums(out, filesBelow(out));
console.log(`${relative(process.cwd(), out)}: ${readdirSync(out).join(" ")}`);

function platformOf(name: string): Platform {
  const platform = platforms.find((one) => one.name === name);
  if (platform !== undefined) return platform;
  fail(`Unknown platform ${name}; there are ${platforms.map((one) => one.name).join(", ")}.`);
}

/** Writes the packages of the CUDA engine. Their description names the drivers that it needs. */
async function writeCuda(library: string): Promise<void> {
  const drivers = nvcc === null ? "" : `; for drivers from ${oldestDriver(await nvccVersion(nvcc))} on`;
  const files = { "libbunting_cuda.so": library };
  writeArchive(cudaName, files);
  const description = `Bunting's engine for NVIDIA GPUs${drivers}`;
  writePlatformPackage({ ...cudaPlatform, name: cudaName }, { description }, files);
}

/** Compiles an engine for a platform and returns the library's path. */
function buildLibrary({ target, cpu }: Platform, engine: "cpu" | "cuda" = "cpu"): string {
  const folder = join(cache, target);
  const bin = join(cache, "bin");
  mkdirSync(bin, { recursive: true });
  // CMake accepts one path as a compiler, without arguments.
  const compiler = join(bin, `c++-${target}`);
  const zig = zigCommand()
    .map((word) => JSON.stringify(word))
    .join(" ");
  writeFileSync(compiler, `#!/bin/sh\nexec ${zig} c++ -target ${target} "$@"\n`, { mode: 0o755 });
  run([
    "cmake",
    ...["-S", join(root, "csrc"), "-B", folder, "-DCMAKE_BUILD_TYPE=Release"],
    ...["-DCMAKE_SYSTEM_NAME=Linux", `-DCMAKE_SYSTEM_PROCESSOR=${cpu === "x64" ? "x86_64" : "aarch64"}`],
    `-DCMAKE_CXX_COMPILER=${compiler}`,
    // Assertions name their file: relative, so that the folder of the source does not change the bytes.
    `-DCMAKE_CXX_FLAGS=-ffile-prefix-map=${join(root, "csrc")}=csrc -g0`,
    // Symbols of nvcc's objects name its temporary files.
    "-DCMAKE_SHARED_LINKER_FLAGS=-s",
    ...(engine === "cuda" ? [`-DBUNTING_NVCC=${nvcc === null ? "" : Bun.which(nvcc)}`] : []),
    ...(Bun.which("ccache") === null ? [] : ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]),
  ]);
  const built = `bunting_${engine}`;
  run(["cmake", "--build", folder, "-j", String(availableParallelism()), "--target", built]);
  return join(folder, engine === "cuda" ? "cuda" : ".", `lib${built}.so`);
}

/** Command that starts zig. */
function zigCommand(): string[] {
  const named = process.env.BUNTING_ZIG;
  if (named !== undefined) return [named];
  const found = Bun.which("zig");
  if (found !== null) return [found];
  const python = Bun.which("python3");
  if (python !== null && Bun.spawnSync([python, "-m", "ziglang", "version"]).exitCode === 0) {
    return [python, "-m", "ziglang"];
  }
  fail("No zig found: install it (for example `pip install ziglang`), or name it in BUNTING_ZIG.");
}

/** Fetches the Bun binary of a platform through npm, which verifies it. */
function fetchRuntime({ runtime }: Platform): string {
  const bunVersion = packageJson.dependencies.bun;
  const folder = join(cache, `${runtime}-${bunVersion}`);
  const binary = join(folder, "package", "bin", "bun");
  if (existsSync(binary)) return binary;
  mkdirSync(folder, { recursive: true });
  const { stdout } = Bun.spawnSync(
    ["npm", "pack", "--silent", "--pack-destination", folder, `@oven/${runtime}@${bunVersion}`],
    { stderr: "inherit" },
  );
  const archive = join(folder, String(stdout).trim());
  if (String(stdout).trim() === "" || !existsSync(archive))
    fail(`npm has no @oven/${runtime}@${bunVersion}.`);
  run(["tar", "xzf", archive, "-C", folder]);
  rmSync(archive);
  return binary;
}

/** Files of packaging/: name → source. */
function packagingFiles(...names: readonly string[]): Record<string, string> {
  return Object.fromEntries(names.map((name) => [name, join(root, "packaging", name)]));
}

/** Archive with files (name → source) and their installer. */
function writeArchive(name: string, given: Readonly<Record<string, string>>): void {
  const folder = `bunting-${version}-${name}`;
  const staging = join(cache, "staging");
  const target = join(staging, folder);
  rmSync(staging, { recursive: true, force: true });
  mkdirSync(target, { recursive: true });
  const files = { ...given, ...packagingFiles("install.sh"), LICENSE: join(root, "LICENSE") };
  for (const [file, source] of Object.entries(files)) cpSync(source, join(target, file));
  writeChecksums(target, Object.keys(files).sort());
  // Order, times and owners are fixed, so that equal files make equal archives.
  const stable = [
    "--sort=name",
    "--mtime=@0",
    "--owner=0",
    "--group=0",
    "--numeric-owner",
    "--mode=u+rwX,go=rX",
  ];
  const archive = join(out, `${folder}.tar.gz`);
  run(["tar", ...stable, "--use-compress-program=gzip -n -6", "-cf", archive, "-C", staging, folder]);
  rmSync(staging, { recursive: true });
}

/** npm package for one platform, with files (name → source) and more fields of its manifest. */
function writePlatformPackage(
  { name, cpu, libc }: Platform,
  fields: object,
  files: Readonly<Record<string, string>>,
): void {
  writePackage(
    { ...about, ...fields, name: `@bunting/${name}`, os: ["linux"], cpu: [cpu], libc: [libc] },
    files,
  );
}

/** npm package that users install. */
function writeMainPackage(): void {
  const names = platforms.map(({ name }) => [`@bunting/${name}`, version]);
  const manifest = {
    ...about,
    name: "bunting",
    description: packageJson.description,
    type: "module",
    bin: { bunting: "bunting.mjs" },
    engines: packageJson.engines,
    optionalDependencies: Object.fromEntries(names),
    // Users with a GPU install it themselves, in the same version.
    peerDependencies: { [`@bunting/${cudaName}`]: version },
    peerDependenciesMeta: { [`@bunting/${cudaName}`]: { optional: true } },
  };
  const files = {
    "bunting.mjs": join(root, "packaging", "npm", "bunting.mjs"),
    "README.md": join(root, "README.md"),
  };
  writePackage(manifest, files);
}

/** Packs files (name → source) with a manifest into `out`, under npm's own file name. */
function writePackage(manifest: object, files: Readonly<Record<string, string>>): void {
  const folder = join(cache, "npm");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
  for (const [name, source] of Object.entries({ ...files, LICENSE: join(root, "LICENSE") })) {
    cpSync(source, join(folder, name));
  }
  run(["npm", "pack", "--silent", "--pack-destination", out, folder]);
  rmSync(folder, { recursive: true });
}

/** Writes SHA256SUMS of `names` into `folder`. */
function writeChecksums(folder: string, names: readonly string[]): void {
  const lines = names.map((name) => {
    const sha256 = new Bun.CryptoHasher("sha256").update(readFileSync(join(folder, name))).digest("hex");
    return `${sha256}  ${name}\n`;
  });
  writeFileSync(join(folder, "SHA256SUMS"), lines.join(""));
}

function filesBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)))
    .sort();
}

function run(command: readonly string[]): void {
  const { exitCode, stdout, stderr } = Bun.spawnSync([...command], { cwd: root });
  if (exitCode === 0) return;
  fail(`${stdout}${stderr}\n\n${command.join(" ")} failed (exit code ${exitCode}): see above.`);
}

function fail(reason: string): never {
  console.error(reason);
  process.exit(1);
}
