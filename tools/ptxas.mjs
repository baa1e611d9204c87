// `node tools/ptxas.mjs [--write] [architecture ...]`: compiles every CUDA kernel for every GPU with nvcc and tells what
// each takes of a multiprocessor. Fails if a kernel spills registers to memory. `--write` puts the table into
// docs/reference/gpu-kernels.md. Needs nvcc, no GPU.

import { spawn, spawnSync } from "node:child_process";
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { root } from "./setup.mjs";

const ARCHITECTURES = ["80", "86", "89", "90a", "100", "120"];
const FLAGS = ["-std=c++20", "-O3", "--expt-relaxed-constexpr", "-cubin", "-Xptxas", "-v", "-o", "/dev/null"];
const JOBS = 2;

/**
 * What ptxas says of each kernel of one compilation.
 * @returns {{ kernel: string, registers: number, spillBytes: number }[]}
 */
export function parsePtxas(text) {
  const kernels = [];
  for (const part of text.split("Compiling entry function '").slice(1)) {
    const mangled = part.slice(0, part.indexOf("'"));
    const spills = [...part.matchAll(/(\d+) bytes spill/g)].map(([, bytes]) => Number(bytes));
    const registers = Number(/Used (\d+) registers/.exec(part)?.[1] ?? Number.NaN);
    kernels.push({
      kernel: kernelName(mangled),
      registers,
      spillBytes: spills.reduce((sum, bytes) => sum + bytes, 0),
    });
  }
  return kernels.sort((a, b) => a.kernel.localeCompare(b.kernel, "en", { numeric: true }));
}

/** `gemm_few<8>` from the mangled name of an instantiation of gemm_few_kernel. */
export function kernelName(mangled) {
  const match = /\d+([a-z_]+)_kernel(?:I((?:L[a-z]\d+E)+)E)?/.exec(mangled);
  if (match === null) return mangled;
  const [, name, values] = match;
  const numbers = values === undefined ? [] : [...values.matchAll(/L[a-z](\d+)E/g)].map(([, n]) => n);
  return numbers.length > 0 ? `${name}<${numbers.join(", ")}>` : name;
}

/** A Markdown table: a line per kernel, a column per architecture, registers and, if there are any, bytes of spills. */
export function table(architectures, results) {
  const kernels = [...new Set(results.flatMap(({ kernels }) => kernels.map(({ kernel }) => kernel)))];
  const cell = (architecture, kernel) => {
    const found = results
      .filter((result) => result.architecture === architecture)
      .flatMap((result) => result.kernels)
      .find((entry) => entry.kernel === kernel);
    if (found === undefined) return "–";
    return found.spillBytes > 0 ? `${found.registers} (spills ${found.spillBytes} B)` : `${found.registers}`;
  };
  const lines = [
    `| Kernel | ${architectures.map((name) => `sm_${name}`).join(" | ")} |`,
    `|---|${"---|".repeat(architectures.length)}`,
    ...kernels.map(
      (kernel) => `| \`${kernel}\` | ${architectures.map((name) => cell(name, kernel)).join(" | ")} |`,
    ),
  ];
  return lines.join("\n");
}

function compile(file, architecture) {
  return new Promise((resolve, reject) => {
    const child = spawn("nvcc", [...FLAGS, "-I", join(root, "csrc"), `-arch=sm_${architecture}`, file]);
    let text = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => (text += bytes));
    child.on("error", reject);
    child.on("close", (code) => {
      if (code === 0) resolve({ architecture, kernels: parsePtxas(text) });
      else reject(new Error(`nvcc failed on ${file} for sm_${architecture}:\n${text}`));
    });
  });
}

async function main(args) {
  if (spawnSync("nvcc", ["--version"], { stdio: "ignore" }).status !== 0) {
    console.error("nvcc is missing: install the CUDA toolkit, 12.8 or newer.");
    return 1;
  }
  const named = args.filter((arg) => !arg.startsWith("--"));
  const architectures = named.length > 0 ? named : ARCHITECTURES;
  const folder = join(root, "csrc", "cuda", "kernels");
  const files = readdirSync(folder).filter((name) => name.endsWith(".cu"));
  const work = files
    .sort()
    .flatMap((name) => architectures.map((architecture) => [join(folder, name), architecture]));
  const results = [];
  const runner = async () => {
    for (let next = work.shift(); next !== undefined; next = work.shift())
      results.push(await compile(...next));
  };
  await Promise.all(Array.from({ length: JOBS }, runner));
  const sorted = results.sort((a, b) =>
    (a.kernels[0]?.kernel ?? "").localeCompare(b.kernels[0]?.kernel ?? ""),
  );
  const text = table(architectures, sorted);
  console.log(text);
  if (args.includes("--write")) {
    writeFileSync(
      join(root, "docs", "reference", "gpu-kernels.md"),
      `# GPU kernels\n\nRegisters per thread, from \`node tools/ptxas.mjs --write\`; no kernel may spill.\n\n${text}\n`,
    );
  }
  const spilling = results.flatMap(({ kernels }) => kernels).filter(({ spillBytes }) => spillBytes > 0);
  if (spilling.length > 0) console.error(`${spilling.length} kernels spill registers.`);
  return spilling.length > 0 ? 1 : 0;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  process.exitCode = await main(process.argv.slice(2));
}
