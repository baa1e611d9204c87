// `node tools/ptxas.mjs [--write]`: compiles the CUDA kernels and lists their resources as reported by ptxas.
// Fails if a kernel spills registers, or if docs/reference/gpu-kernels.md differs for the same compiler;
// `--write` writes that page. Needs nvcc but no GPU; without nvcc it succeeds with a note.

import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { buildNative, nativeBuild } from "./native.mjs";
import { root } from "./setup.mjs";

const PAGE = join(root, "docs", "reference", "gpu-kernels.md");
const NO_SPILLS = "no kernel spills";

/**
 * Parses ptxas output by kernel and architecture. @returns {{ kernel: string, architecture: string,
 * registers: number, spillBytes: number }[]}
 */
export function parsePtxas(text) {
  const kernels = [];
  for (const part of text.split("Compiling entry function '").slice(1)) {
    const [, mangled, architecture] = /^([^']*)' for 'sm_(\w+)'/.exec(part) ?? [];
    if (mangled === undefined || architecture === undefined) continue;
    // Spilled registers, and arrays too large for registers: both use memory.
    const spills = [...part.matchAll(/(\d+) bytes (?:spill|stack frame)/g)].map(([, bytes]) => Number(bytes));
    kernels.push({
      kernel: kernelName(mangled),
      architecture,
      registers: Number(/Used (\d+) registers/.exec(part)?.[1] ?? Number.NaN),
      spillBytes: spills.reduce((sum, bytes) => sum + bytes, 0),
    });
  }
  return kernels;
}

/**
 * Kernel name, such as `gemm_few<8>`, from the mangled instantiation of gemm_few_kernel; enumeration values
 * appear as numbers.
 */
export function kernelName(mangled) {
  const match = /\d+([a-z_]+)_kernel(?:I((?:L(?:[a-z]|N\w+?E)\d+E)+)E)?/.exec(mangled);
  if (match === null) return mangled;
  const [, name, values] = match;
  const numbers =
    values === undefined ? [] : [...values.matchAll(/L(?:[a-z]|N\w+?E)(\d+)E/g)].map(([, n]) => n);
  return numbers.length > 0 ? `${name}<${numbers.join(", ")}>` : name;
}

/** Markdown table: a row per kernel, a column per architecture, with registers and any spilled bytes. */
export function table(kernels) {
  const order = (a, b) => a.localeCompare(b, "en", { numeric: true });
  const names = [...new Set(kernels.map(({ kernel }) => kernel))].sort(order);
  const architectures = [...new Set(kernels.map(({ architecture }) => architecture))].sort(order);
  const cell = (name, architecture) => {
    const found = kernels.find((entry) => entry.kernel === name && entry.architecture === architecture);
    if (found === undefined) return "–";
    return found.spillBytes > 0 ? `${found.registers} (spills ${found.spillBytes} B)` : `${found.registers}`;
  };
  return [
    `| Kernel | ${architectures.map((name) => `sm_${name}`).join(" | ")} |`,
    `|---|${"---|".repeat(architectures.length)}`,
    ...names.map((name) => `| \`${name}\` | ${architectures.map((a) => cell(name, a)).join(" | ")} |`),
  ].join("\n");
}

/** Release of the build's nvcc, such as "13.0"; null without nvcc. */
export function nvccRelease() {
  for (const nvcc of ["nvcc", join(process.env.CUDA_HOME ?? "/usr/local/cuda", "bin", "nvcc")]) {
    const { status, stdout } = spawnSync(nvcc, ["--version"], { encoding: "utf8" });
    if (status === 0) return /release ([\d.]+)/.exec(stdout)?.[1] ?? "unknown";
  }
  return null;
}

function page(release, kernels) {
  return `# GPU kernels

Registers per thread, as nvcc ${release} reports them; ${NO_SPILLS}. Angle brackets hold template arguments. Matrix products: the
number of tiles of eight tokens, the weight format (0 bf16, 1 int8, 2 int8 in groups of 32, 3 int4, 4 fp8, 5 MXFP4), and 1 for rows of
experts. \`gemm_many\` has no number of tiles. Attention: the size of a head, and 1 for keys and values in fp8. \`node tools/ptxas.mjs --write\` writes this page.

${table(kernels)}
`;
}

/** Builds and checks the kernels. Returns the problem or null, and a sentence about the result. */
export async function checkRegisters(write = false) {
  const release = nvccRelease();
  if (release === null) return { skipped: true, problem: null, seen: "there is no nvcc" };
  await buildNative(["bunting_cuda_kernels"]);
  const folder = join(nativeBuild, "cuda");
  const logs = readdirSync(folder).filter((name) => name.endsWith(".ptxas"));
  const kernels = logs.flatMap((name) => parsePtxas(readFileSync(join(folder, name), "utf8")));
  const text = page(release, kernels);
  const spilling = kernels.filter(({ spillBytes }) => spillBytes > 0);
  const seen = `${kernels.length} kernels of ${logs.length} files, nvcc ${release}`;
  if (kernels.length === 0) return { skipped: false, problem: `ptxas said nothing in ${folder}`, seen };
  if (spilling.length > 0)
    return {
      skipped: false,
      problem: `${spilling.length} kernels spill registers:\n${table(spilling)}`,
      seen,
    };
  if (write) writeFileSync(PAGE, text);
  const committed = existsSync(PAGE) ? readFileSync(PAGE, "utf8") : "";
  const isStale = committed !== text && committed.includes(`nvcc ${release} `);
  const problem = isStale
    ? "docs/reference/gpu-kernels.md has other numbers: node tools/ptxas.mjs --write"
    : null;
  return { skipped: false, problem, seen };
}

async function main(args) {
  const { skipped, problem, seen } = await checkRegisters(args.includes("--write"));
  if (problem !== null) console.error(problem);
  else
    console.log(
      skipped ? `Left out: registers and spills of the CUDA kernels: ${seen}.` : `${seen}: ${NO_SPILLS}.`,
    );
  return problem === null ? 0 : 1;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  process.exitCode = await main(process.argv.slice(2));
}
