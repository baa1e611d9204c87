/**
 * Repeats the step that lost a GPU on the emulated GPU, which checks every access:
 *
 *   npx bun tools/replay-step.ts <file> [model] [options of `bunting serve`]
 *
 * With BUNTING_CUDA_SYNC=1 the reason of a lost GPU names the file. It has the step alone: what earlier steps
 * left in its pages is zero here. The settings that the step depends on are
 * those of the server: --quant, --kv, --max-model-len. Says which kernel is at fault; else compares the step's
 * logits with those of the CPU engine. The exit code is 1 if there is a fault or a difference.
 */

import { readFileSync } from "node:fs";
import { Command } from "commander";
import { closeNativeModel, openNativeModel } from "../gpu/native/open.ts";
import { type EngineLimits, NativeError, type NativeLibrary, openLibrary } from "../gpu/native.ts";
import { blockLayout, StepResultBlock } from "../gpu/step-block.ts";
import { demoModelFolder } from "../server/assets.ts";
import { isForPeople } from "../server/cli/failure.ts";
import { localModelPath } from "../server/cli/model-argument.ts";
import { addOptions, optionValues } from "../server/cli/options.ts";
import { type Config, ConfigError, serverHeadings, serverSettings } from "../server/config.ts";
import { chooseBackend, type NativeChoice } from "../server/engines/backend.ts";
import { planServing, type ServingPlan } from "../server/engines/plan.ts";
import { cosineOf } from "../tests/device/compare.ts";

/** Minimum cosine between rows of logits of two engines that compute the same step. */
const COSINE_MIN = 0.9;

/**
 * Settings of the emulated GPU: all mappable memory, one kernel at a time, and no second record of a fault.
 */
const emulation = {
  BUNTING_CUDA_SYNC: "1",
  TMPDIR: "/dev/null",
  BUNTING_EMULATOR_MISHAPS: `memory_bytes=${2 ** 44} ${process.env.BUNTING_EMULATOR_MISHAPS ?? ""}`,
};

if (import.meta.main) {
  // Native code reads the environment of the process's start, so the program starts itself again.
  if (process.env.TMPDIR !== emulation.TMPDIR) {
    const command = [process.execPath, ...process.argv.slice(1)];
    const env = { ...process.env, ...emulation };
    process.exit(Bun.spawnSync(command, { env, stdio: ["inherit", "inherit", "inherit"] }).exitCode);
  }
  const command = new Command("replay-step")
    .description("Repeats the step that lost a GPU on the emulated GPU.")
    .argument("<file>", "block of the step, as the reason of the lost GPU names it")
    .argument("[model]", "model that the server had; without it, the model that comes with Bunting");
  addOptions(command, { settings: serverSettings, headings: serverHeadings });
  command.action(async (file: string, model?: string) => {
    try {
      process.exit(await replay(file, model ?? null, optionValues(command, serverSettings)));
    } catch (error) {
      console.error(isForPeople(error) ? error.message : error);
      process.exit(1);
    }
  });
  await command.parseAsync();
}

async function replay(file: string, model: string | null, config: Config): Promise<number> {
  const block = readBlock(file);
  const needs = needsOf(block);
  if (needs === null) throw new ConfigError(`${file} is not the block of a step.`);
  const { tokens, chunks, rows, pages } = needs;
  console.log(
    `Tokens: ${tokens}, sequences: ${chunks}, results: ${rows}, last page: ${pages - 1}. Keys and values of earlier steps are zeros here.`,
  );
  const path = model === null ? await demoModelFolder() : localModelPath(model);
  const gpu = await engineOf({ kind: "emu" }, config, path);
  let logits: Float32Array;
  try {
    logits = logitsOf(gpu, needs, block);
  } catch (error) {
    if (!(error instanceof NativeError) || error.status !== "lost") throw error;
    console.log(`It fails on the emulated GPU: ${error.message}.`);
    return 1;
  }
  console.log("It runs on the emulated GPU without a fault.");
  const quant = config.quant === "fp8" ? "auto" : config.quant;
  const cpu = await engineOf(
    { kind: "cpu", engines: 1 },
    { ...config, quant, kv: "plain", gemm: "own" },
    path,
  );
  return compare(logits, logitsOf(cpu, needs, block), gpu.folder.config.shape.vocab);
}

function readBlock(file: string): Int32Array {
  const bytes = readFileSync(file);
  const words = new Int32Array(new ArrayBuffer(bytes.length - (bytes.length % 4)));
  new Uint8Array(words.buffer).set(bytes.subarray(0, words.byteLength));
  return words;
}

/** Capacity that an engine needs for a block. Page ids count from 0. */
interface BlockNeeds {
  readonly tokens: number;
  readonly chunks: number;
  readonly rows: number;
  readonly pages: number;
}

/** Capacity for a block; null if the words are not a step block. */
function needsOf(block: Int32Array): BlockNeeds | null {
  const { magic, arrayNames, headerWords, moveWords } = blockLayout;
  if (block.length < headerWords || block[0] !== magic || block[1] !== block.length) return null;
  type Name = (typeof arrayNames)[number];
  const at = (name: Name): number => 2 + arrayNames.indexOf(name);
  const count = (name: Name): number => block[at(name)]!;
  const first = (name: Name): number => block[at(name) + arrayNames.length]!;
  const used = block.subarray(first("pages"), first("pages") + count("pages"));
  let pages = used.reduce((most, page) => Math.max(most, page + 1), 1);
  for (let move = 0; move < count("moves"); move += 1) {
    const [from, to] = block.subarray(first("moves") + move * moveWords);
    pages = Math.max(pages, from! + 1, to! + 1);
  }
  return { tokens: count("tokens"), chunks: count("chunks"), rows: count("rows"), pages };
}

type Engine = ServingPlan & { readonly library: NativeLibrary };

async function engineOf(device: NativeChoice, config: Config, path: string): Promise<Engine> {
  const backend = await chooseBackend(device);
  const library = openLibrary(backend.library);
  return { ...planServing(config, backend, library, path), library };
}

/** Runs a block and returns the logits of its rows, in the block's order. */
function logitsOf(engine: Engine, needs: BlockNeeds, block: Int32Array): Float32Array {
  const { library, folder, contextMax, backend } = engine;
  const { vocab, hidden } = folder.config.shape;
  const rows = Math.max(1, needs.rows);
  const limits: EngineLimits = {
    ...engine.limits,
    pages: needs.pages,
    stepTokensMax: needs.tokens,
    stepChunksMax: needs.chunks,
    stepDrawsMax: rows,
    stepHiddenMax: rows,
    ...(backend.gpus === null ? {} : { devices: [0] }),
  };
  const { topLogprobsMax } = limits;
  const result = new StepResultBlock({ drawsMax: rows, topLogprobsMax, hiddenMax: rows, hiddenSize: hidden });
  const model = openNativeModel(
    library,
    folder,
    { ...engine.compute, compute: "bf16", contextMax },
    () => {},
  );
  const handle = library.engineOpen(model.handle, null, limits, () => {});
  try {
    const { byteOffset, byteLength } = block;
    library.stepStart(handle, new Uint8Array(block.buffer, byteOffset, byteLength), result.bytes);
    library.stepWait(handle, null);
    return library.logits(handle, vocab);
  } finally {
    library.engineClose(handle);
    closeNativeModel(library, model);
  }
}

/** Compares the rows of two engines and reports where they differ most. */
function compare(got: Float32Array, expected: Float32Array, vocab: number): number {
  if (got.length === 0) return 0;
  const cosines = Array.from({ length: got.length / vocab }, (_, row) => {
    const range = [row * vocab, (row + 1) * vocab] as const;
    return cosineOf(got.subarray(...range), expected.subarray(...range));
  });
  const worst = cosines.reduce((least, cosine, row) => (cosine >= cosines[least]! ? least : row), 0);
  const isNear = cosines[worst]! >= COSINE_MIN;
  const verdict = isNear ? "are near" : "are not";
  console.log(
    `Its logits (rows: ${cosines.length}) ${verdict} those of the CPU engine: the least cosine is ${cosines[worst]!.toFixed(5)}, in row ${worst}.`,
  );
  return isNear ? 0 : 1;
}
