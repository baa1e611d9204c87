// Finds nvcc: the one that BUNTING_NVCC names, the one that `npm run setup -- --cuda` fetched from PyPI, or an installed
// one. Finds or fetches the disassembler too. Fetching needs neither root nor Python.

import { createHash } from "node:crypto";
import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { lastLines, runQuietly, runs, SetupError } from "./process.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const folder = join(root, "build", "cuda");

/** CUDA release of the wheels; later 12.x wheels have no nvcc. */
export const RELEASE = "13.0";
const PACKAGES = [
  "nvidia-cuda-nvcc",
  "nvidia-nvvm",
  "nvidia-cuda-crt",
  "nvidia-cuda-runtime",
  "nvidia-cuda-cccl",
];
/** Programs that print a compiled kernel's instructions; they also read output of older nvcc releases. */
const DISASSEMBLER = { release: "13.2", packages: ["nvidia-cuda-cuobjdump", "nvidia-cuda-nvdisasm"] };

/** Path of an nvcc; null if there is none. */
export function findNvcc() {
  const { BUNTING_NVCC: asked, CUDA_HOME: home } = process.env;
  if (asked !== undefined && asked !== "") {
    if (existsSync(asked)) return asked;
    throw new SetupError(`BUNTING_NVCC names ${asked}, which does not exist.`);
  }
  const places = [home, "/usr/local/cuda"].filter((place) => place !== undefined);
  const installed = places.map((place) => join(place, "bin", "nvcc"));
  const found = [fetchedNvcc(folder), ...installed].find((path) => path !== null && existsSync(path));
  return found ?? (runs("nvcc", ["--version"]) ? "nvcc" : null);
}

function fetchedNvcc(from) {
  return fetchedProgram(from, "nvcc");
}

function fetchedProgram(from, program) {
  const parent = join(from, "nvidia");
  if (!existsSync(parent)) return null;
  const paths = readdirSync(parent).map((name) => join(parent, name, "bin", program));
  return paths.find((path) => existsSync(path)) ?? null;
}

/** CUDA version of an nvcc times ten: 130 for 13.0. */
export async function nvccVersion(nvcc) {
  const { output } = await runQuietly(nvcc, ["--version"]);
  const match = /release (\d+)\.(\d+)/.exec(output);
  if (match === null) throw new SetupError(`${lastLines(output, 5)}\n\n${nvcc} does not tell its version.`);
  return Number(match[1]) * 10 + Number(match[2]);
}

/** Oldest driver for output of this nvcc version (130 for 13.0): all minor releases share one. */
export function oldestDriver(version) {
  return version >= 130 ? 580 : 525;
}

/** Fetches nvcc from a package index to `to`, unless it is there. Returns its path. */
export async function fetchNvcc(to = folder, index = indexUrl()) {
  return await fetchProgram("nvcc", PACKAGES, RELEASE, to, index);
}

/**
 * Folder of cuobjdump and nvdisasm; null: in the path. Fetches them to `to` (5 MB) unless they are in the path or there.
 */
export async function findDisassembler(to = join(root, "build", "cuda-disassembler"), index = indexUrl()) {
  if (runs("cuobjdump", ["--version"]) && runs("nvdisasm", ["--version"])) return null;
  const { packages, release } = DISASSEMBLER;
  return dirname(await fetchProgram("cuobjdump", packages, release, to, index));
}

async function fetchProgram(program, packages, release, to, index) {
  const there = fetchedProgram(to, program);
  if (there !== null) return there;
  if (!runs("unzip", ["-v"])) {
    throw new SetupError("unzip is missing: install it (Debian: apt install unzip) and try again.");
  }
  const temporary = `${to}.${process.pid}`;
  mkdirSync(temporary, { recursive: true });
  try {
    for (const name of packages) await fetchWheel(name, release, index, temporary);
    rmSync(to, { recursive: true, force: true });
    renameSync(temporary, to);
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
  const path = fetchedProgram(to, program);
  if (path === null) throw new SetupError(`${packages[0]} ${release} has no ${program}.`);
  return path;
}

/** Index that pip would use. */
function indexUrl() {
  return process.env.PIP_INDEX_URL || "https://pypi.org/simple";
}

async function fetchWheel(name, release, index, to) {
  const page = `${index.replace(/\/+$/, "")}/${name}/`;
  const listing = await fetchOk(page, { accept: "application/vnd.pypi.simple.v1+json" });
  const wheel = newestWheel(await listing.json().catch(() => ({})), release);
  if (wheel === null) {
    throw new SetupError(
      `${page} lists no wheel of ${name} ${release} for ${process.arch}, or is no JSON index.`,
    );
  }
  console.log(`Fetching ${wheel.filename} …`);
  const response = await fetchOk(new URL(wheel.url, page).href);
  const bytes = Buffer.from(await response.arrayBuffer());
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  if (sha256 !== wheel.hashes.sha256) {
    throw new SetupError(
      `${wheel.filename} is damaged: its SHA-256 is ${sha256}, not ${wheel.hashes.sha256}.`,
    );
  }
  const file = join(to, "wheel.zip");
  writeFileSync(file, bytes);
  const { code, output } = await runQuietly("unzip", ["-q", "-o", file, "-d", to]);
  if (code !== 0) throw new SetupError(`${lastLines(output, 5)}\n\n${wheel.filename} cannot be unpacked.`);
  rmSync(file);
  makeExecutable(to);
}

/**
 * The newest wheel of the release in an index's listing; null if there is none with a checksum.
 *
 * @param {{ files?: { filename: string, url: string, hashes?: { sha256?: string }, yanked?: unknown }[] }} listing
 */
export function newestWheel(listing, release, arch = process.arch) {
  const { files = [] } = listing;
  const machine = { x64: "x86_64", arm64: "aarch64" }[arch];
  const patch = ({ filename }) => Number(filename.split("-")[1].split(".")[2]);
  const suitable = files.filter(
    ({ filename, hashes, yanked }) =>
      filename.endsWith(`${machine}.whl`) &&
      filename.split("-")[1].startsWith(`${release}.`) &&
      hashes?.sha256 !== undefined &&
      !yanked,
  );
  return suitable.reduce((best, file) => (best === null || patch(file) > patch(best) ? file : best), null);
}

/** Programs of a wheel have no permission to run. */
function makeExecutable(to) {
  for (const name of readdirSync(join(to, "nvidia"))) {
    for (const bin of ["bin", "nvvm/bin"]) {
      const programs = join(to, "nvidia", name, bin);
      if (!existsSync(programs)) continue;
      for (const entry of readdirSync(programs, { withFileTypes: true })) {
        if (entry.isFile()) chmodSync(join(programs, entry.name), 0o755);
      }
    }
  }
}

async function fetchOk(url, headers = {}) {
  const response = await fetch(url, { headers }).catch((error) => error);
  if (response instanceof Response && response.ok) return response;
  const reason =
    response instanceof Response
      ? `status ${response.status}`
      : (response.cause?.message ?? response.message);
  throw new SetupError(`${url} cannot be fetched: ${reason}. PIP_INDEX_URL names another package index.`);
}
