// `node tools/sass.mjs [--write] [folder]`: counts the instructions of the compiled CUDA kernels on Hopper and fails if a
// kernel has more than its budget in benchmarks/gpu/instructions.json; `--write` writes that file. The folder has the
// objects of a build (build/native/cuda). Takes cuobjdump and nvdisasm from the path, or fetches them from PyPI (5 MB);
// without them it succeeds with a note.

import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { findDisassembler } from "./cuda-toolkit.mjs";
import { nativeBuild } from "./native.mjs";
import { SetupError } from "./process.mjs";
import { kernelName } from "./ptxas.mjs";
import { root } from "./setup.mjs";

const BUDGETS = join(root, "benchmarks", "gpu", "instructions.json");
const OUTPUT_BYTES_MAX = 1 << 29;

/** Execution units of the cost model, by instruction name. */
const UNITS = [
  ["tensor", /^HMMA/],
  ["shared", /^(LDS|LDSM|STS|ATOMS)\b/],
  ["global", /^(LDG|LDGSTS|STG|ATOMG|RED)\b/],
];

/**
 * Counts the instructions of each kernel in the output of `cuobjdump -sass`: of the whole kernel, and of the loop with the
 * most tensor instructions among those without a loop of tensor instructions inside. @returns {{ [kernel: string]: {
 * all: number, loop?: { all: number, tensor: number, shared: number, global: number } } }}
 */
export function countInstructions(text) {
  const kernels = {};
  for (const part of text.split("Function : ").slice(1)) {
    const instructions = [
      ...part.matchAll(/^\s+\/\*([0-9a-f]{4,})\*\/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)([^;]*);/gm),
    ]
      .map(([, at, name, operands]) => ({ at: Number.parseInt(at, 16), name, operands }))
      .filter(({ name }) => name !== "NOP");
    kernels[kernelName(part.slice(0, part.indexOf("\n")).trim())] = {
      all: instructions.length,
      ...mainLoop(instructions),
    };
  }
  return kernels;
}

function mainLoop(instructions) {
  const loops = [];
  for (const { at, name, operands } of instructions) {
    const target = name.startsWith("BRA") ? Number(/0x[0-9a-f]+/.exec(operands)?.[0] ?? at) : at;
    if (target >= at) continue;
    const inside = instructions.filter((one) => one.at >= target && one.at <= at);
    const counts = Object.fromEntries(
      UNITS.map(([unit, pattern]) => [unit, inside.filter((one) => pattern.test(one.name)).length]),
    );
    if (counts.tensor > 0) loops.push({ begin: target, end: at, all: inside.length, ...counts });
  }
  const inner = loops.filter(
    (loop) => !loops.some((other) => other !== loop && other.begin >= loop.begin && other.end <= loop.end),
  );
  const [largest] = inner.sort((a, b) => b.tensor - a.tensor || b.all - a.all);
  if (largest === undefined) return {};
  const { begin: _, end: __, ...loop } = largest;
  return { loop };
}

/** Sentences about kernels that exceed their budgets or have none. */
export function exceeding(counted, budgets) {
  const said = [];
  for (const [kernel, { all, loop }] of Object.entries(counted)) {
    const budget = budgets[kernel];
    if (budget === undefined) said.push(`${kernel} has no budget.`);
    else if (all > budget.all) said.push(`${kernel} has ${all} instructions, more than ${budget.all}.`);
    for (const unit of Object.keys(loop ?? {})) {
      const most = budget?.loop?.[unit];
      if (loop[unit] > (most ?? Number.POSITIVE_INFINITY))
        said.push(`The main loop of ${kernel} has ${loop[unit]} instructions (${unit}), more than ${most}.`);
    }
  }
  return said;
}

function countFolder(folder, tools) {
  const counted = {};
  const PATH = tools === null ? process.env.PATH : `${tools}:${process.env.PATH}`;
  for (const name of readdirSync(folder)
    .filter((file) => file.endsWith(".o"))
    .sort()) {
    const { status, stdout, stderr } = spawnSync(
      "cuobjdump",
      ["-sass", "-arch", "sm_90a", join(folder, name)],
      { encoding: "utf8", maxBuffer: OUTPUT_BYTES_MAX, env: { ...process.env, PATH } },
    );
    if (status !== 0) throw new Error(`cuobjdump on ${name}: ${stderr}`);
    if (!stdout.includes("Function : ")) continue;
    Object.assign(counted, countInstructions(stdout));
  }
  return counted;
}

/**
 * Compares a build with the budgets. Returns sentences about what exceeds them, or why nothing was counted.
 *
 * @returns {Promise<{ skipped: string | null, exceeding: readonly string[] }>}
 */
export async function checkInstructions(folder = join(nativeBuild, "cuda"), write = false) {
  const nothing = (skipped) => ({ skipped, exceeding: [] });
  const hasObjects = existsSync(folder) && readdirSync(folder).some((file) => file.endsWith(".o"));
  if (!hasObjects) return nothing("no kernel is compiled");
  let counted;
  try {
    counted = countFolder(folder, await findDisassembler());
  } catch (error) {
    if (error instanceof SetupError) return nothing(`there is no cuobjdump, and ${error.message}`);
    throw error;
  }
  if (Object.keys(counted).length === 0) return nothing("no kernel is compiled for sm_90a");
  if (write) {
    const rows = Object.entries(counted).sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
    const lines = rows.map(([kernel, counts]) => `  ${JSON.stringify(kernel)}: ${JSON.stringify(counts)}`);
    writeFileSync(BUDGETS, `{\n${lines.join(",\n")}\n}\n`);
  }
  return { skipped: null, exceeding: exceeding(counted, JSON.parse(readFileSync(BUDGETS, "utf8"))) };
}

async function main(args) {
  const folder = args.find((one) => !one.startsWith("--"));
  const { skipped, exceeding } = await checkInstructions(folder && resolve(folder), args.includes("--write"));
  if (skipped !== null) console.log(`Left out: instructions of the CUDA kernels: ${skipped}.`);
  else console.log(exceeding.length > 0 ? exceeding.join("\n") : "All kernels are within their budgets.");
  return exceeding.length === 0 ? 0 : 1;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  process.exitCode = await main(process.argv.slice(2));
}
