/**
 * `bunting batch`: runs a file of prompts on an existing server, or on one that it starts, and resumes an
 * interrupted run.
 */

import { createHash, randomUUID } from "node:crypto";
import { createWriteStream, existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { yieldIfSpent } from "../../base/time-slice.ts";
import { ConfigError, flag, integer, makeConfig, optional, text, type Values } from "../config.ts";
import { ownFolder } from "../own-files.ts";
import { startServer } from "../start.ts";
import { type BatchInput, batchInput, STANDARD_INPUT } from "./batch-input.ts";
import { STANDARD, writeOrdered, writeResults, writeWhole } from "./batch-output.ts";
import { progressText } from "./batch-progress.ts";
import { startedSettings } from "./chat-command.ts";
import { ServerError } from "./client.ts";
import { linesOf } from "./file-lines.ts";
import { type BatchObject, hasEnded, JobsClient } from "./jobs-client.ts";
import { modelPath } from "./model-argument.ts";
import type { OptionList } from "./options.ts";
import { progressLine, showLoading } from "./progress.ts";
import { type Interruption, interruption } from "./signals.ts";
import { apiKeySetting, targetOf } from "./target.ts";

const POLL_MS = 250;
const WINDOW = "365d";
const GOES_ON = "The same command goes on where this one was.";

export const batchSettings = Object.freeze({
  output: text({
    default: "",
    placeholder: "file",
    sentence:
      "Where results go, one JSON object per line; - is standard output, with one line for each line of the input. Must be given.",
  }),
  ordered: flag({
    sentence:
      "Write one result per input line in input order, failures included; otherwise failures go to a separate file.",
  }),
  promptTemplate: optional({
    sentence: "Prompt template for rows of CSV ({column}) or lines of text ({line}).",
  }),
  maxTokens: integer({
    unit: "tokens",
    default: 1024,
    min: 1,
    max: 2 ** 24,
    sentence: "Maximum tokens of an answer to a prompt of CSV or text.",
  }),
  url: optional({
    placeholder: "url",
    defaultText: "one is started for this",
    sentence: "The server to run it on.",
  }),
  apiKey: apiKeySetting,
  ...startedSettings,
});

export const batchOptions: OptionList<typeof batchSettings> = {
  settings: batchSettings,
  headings: {
    output: "Results:",
    promptTemplate: "Prompts of CSV and text:",
    url: "Server:",
    device: "A server that is started for this job:",
  },
  letters: { output: "-o" },
};

export type BatchOptions = Values<typeof batchSettings>;

/** State kept beside the output until the output is complete. */
interface State {
  /** Digest of the sent lines. */
  readonly sha256: string;
  /** Key in the batch's metadata by which this command finds the batch again. */
  readonly key: string;
  /** Batch id; null if the batch may not exist yet. */
  readonly batch: string | null;
}

/**
 * Exit codes of completed runs. 1 means that nothing could run or that the server was unreachable; a signal
 * has its own code.
 */
const exitCodes = { answered: 0, someFailed: 3 } as const;

export const batchHelp = `
Exit codes:
  0    every line was answered
  1    nothing was run, or the server cannot be reached; the reason is said
  3    the results are there, but some lines failed
  130  stopped by Ctrl-C (143 by SIGTERM); the same command goes on, unless
       its results go to standard output`;

/** Work of this command, with its state folder. */
interface Job extends BatchInput {
  readonly name: string;
  /** Digest of its lines. */
  readonly sha256: string;
  /** Folder of its state until the output is complete. */
  readonly folder: string;
}

/** Runs the batch to its end, or until Ctrl-C; resolves to the exit code. */
export async function batch(options: BatchOptions, input: string, dir: string | null): Promise<number> {
  const { output, url } = options;
  if (output === "") throw new ConfigError("Say with -o where results go; -o - is standard output.");
  if (output !== STANDARD && existsSync(output))
    throw new ConfigError(`${output} exists already: remove it, or name another file with -o.`);
  if (url !== null && dir !== null)
    throw new ConfigError("A model is for a server that is started; --url names one that runs.");
  const interrupted = interruption();
  const isPiped = input === STANDARD || output === STANDARD;
  const scratch = isPiped ? mkdtempSync(join(tmpdir(), "bunting-batch-")) : null;
  try {
    const path = input === STANDARD ? await keptInput(join(scratch!, "input"), interrupted) : input;
    const name = input === STANDARD ? STANDARD_INPUT : basename(path);
    const folder = output === STANDARD ? join(scratch!, "job") : `${output}.job`;
    const job = await readInput(path, name, folder, options, interrupted);
    if (job === null) return interrupted.exitCode;
    return await (url === null
      ? runHere(job, dir, options, interrupted)
      : runThere(job, url, options, interrupted));
  } finally {
    if (scratch !== null) rmSync(scratch, { recursive: true, force: true });
  }
}

/** Copies standard input to a file, because it is read more than once. */
async function keptInput(path: string, { signal }: Interruption): Promise<string> {
  if (process.stdin.isTTY === true) console.error("Reading from the terminal, until Ctrl-D.");
  const kept = createWriteStream(path, { mode: 0o600 });
  await pipeline(process.stdin, kept, { signal }).catch((error: unknown) => {
    if (!signal.aborted) throw error;
  });
  return path;
}

/** Reads the whole input once, so that a faulty input fails before anything is sent; null if interrupted. */
async function readInput(
  path: string,
  name: string,
  folder: string,
  { promptTemplate, maxTokens }: BatchOptions,
  { signal }: Interruption,
): Promise<Job | null> {
  if (signal.aborted) return null;
  const rules = { template: promptTemplate, maxTokens };
  const input = batchInput(name, () => linesOf(path, name === STANDARD_INPUT ? name : path), rules);
  const hash = createHash("sha256");
  for (const line of input.lines()) {
    hash.update(`${line}\n`);
    await yieldIfSpent();
    if (signal.aborted) return null;
  }
  return { ...input, name, sha256: hash.digest("hex"), folder };
}

/** Runs a job on a server started for it. */
async function runHere(
  job: Job,
  dir: string | null,
  options: BatchOptions,
  interrupted: Interruption,
): Promise<number> {
  const { folder } = job;
  const progress = progressLine();
  const { device, threads, dtype, quant, packedWeights, lora, maxModelLen, kvCacheGib } = options;
  const started = { device, threads, dtype, quant, packedWeights, lora, maxModelLen, kvCacheGib };
  const limits = { batchLinesMax: 10_000_000, batchFileMib: 2 ** 20, batchStorageGib: 2 ** 20 };
  const config = makeConfig({ port: 0, data: { folder: join(folder, "data") }, ...limits, ...started });
  try {
    const path = await modelPath(dir, config);
    const starting = startServer(config, path, { onPlan: () => {}, onProgress: showLoading(progress) });
    const server = await Promise.race([starting, interrupted.aborted]);
    progress.clear();
    if (server === null) return interrupted.exitCode;
    const client = new JobsClient({ url: server.url, apiKey: null });
    return await run(client, job, options, interrupted).finally(() => server.drain(0));
  } finally {
    // The server writes to the folder until it has ended; without a state file there is nothing to resume.
    if (!existsSync(stateOf(folder))) rmSync(folder, { recursive: true, force: true });
  }
}

/** Runs a job on the server at `url`. */
async function runThere(
  job: Job,
  url: string,
  options: BatchOptions,
  interrupted: Interruption,
): Promise<number> {
  const client = new JobsClient(targetOf(url, options.apiKey));
  try {
    return await run(client, job, options, interrupted);
  } catch (error) {
    if (!(error instanceof ServerError) || error.status !== 501) throw error;
    throw new ServerError(501, `${error.message}. Without --url a server is started for the job.`);
  }
}

async function run(
  client: JobsClient,
  job: Job,
  options: BatchOptions,
  interrupted: Interruption,
): Promise<number> {
  const id = await begun(client, job);
  try {
    const ended = await watch(client, id, interrupted);
    if (ended !== null) return await finish(client, ended, job, options);
    await stop(client, id, options);
    return interrupted.exitCode;
  } catch (error) {
    if (!(error instanceof ServerError) || options.output === STANDARD) throw error;
    throw new ServerError(error.status, `${error.message} ${GOES_ON}`);
  }
}

/**
 * Prints how to resume a stopped job. Cancels the job if its results go to standard output, because nobody
 * could fetch them.
 */
async function stop(client: JobsClient, id: string, { output }: BatchOptions): Promise<void> {
  if (output !== STANDARD) {
    console.error(`Stopped. ${GOES_ON}`);
    return;
  }
  await client.cancel(id);
  console.error("Stopped, and the job is cancelled: there is no file to go on with.");
}

/** Writes the results of a batch that has ended. */
async function finish(
  client: JobsClient,
  ended: BatchObject,
  { folder, lines }: Job,
  { output, ordered }: BatchOptions,
): Promise<number> {
  for (const { line, message } of ended.errors?.data ?? []) {
    console.error(line === null ? message : `Line ${line}: ${message}`);
  }
  if (ended.status === "failed") {
    rmSync(folder, { recursive: true, force: true });
    return 1;
  }
  const isPiped = output === STANDARD;
  const isOrdered = ordered || isPiped;
  if (isOrdered) await writeOrdered(client, ended, lines(), output, folder);
  else await writeResults(client, ended, output);
  rmSync(folder, { recursive: true, force: true });
  const { completed = 0, failed = 0 } = ended.request_counts ?? {};
  const counts = `${completed} answered, ${failed} failed`;
  const failures = failed > 0 && !isOrdered ? ` (${output}.errors)` : "";
  if (isPiped) console.error(`${counts}.`);
  else console.log(`${counts}${failures}: ${output}`);
  if (ended.status !== "completed")
    console.error(`The job is ${ended.status}: lines that had not run by then failed.`);
  return failed > 0 ? exitCodes.someFailed : exitCodes.answered;
}

function stateOf(folder: string): string {
  return join(folder, "state.json");
}

/** Id of the batch for these lines: resumes the one in the state file, or creates one. */
async function begun(client: JobsClient, job: Job): Promise<string> {
  const { name, endpoint, sha256, folder } = job;
  const path = stateOf(folder);
  const before = existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as State) : null;
  if (before !== null && before.sha256 !== sha256)
    throw new ConfigError(
      `The input is not the one that ${folder} was begun with: remove that folder to begin anew.`,
    );
  if (before !== null && before.batch !== null) return before.batch;
  const key = before?.key ?? randomUUID();
  const keep = (batch: string | null): Promise<void> =>
    writeWhole(path, [Buffer.from(JSON.stringify({ sha256, key, batch } satisfies State))]);
  // Saved before the batch is created, so that a command killed in between finds that batch instead of
  // creating a second one.
  ownFolder(folder);
  if (before === null) await keep(null);
  const found = before === null ? null : await client.findBatch(key);
  const create = async (): Promise<BatchObject> =>
    client.create(await client.upload(sent(job), name), endpoint, WINDOW, key);
  const { id } =
    found ??
    (await create().catch((error: unknown) => {
      const isRefused =
        error instanceof ServerError && (error.status === 501 || (error.status >= 400 && error.status < 500));
      if (isRefused && before === null) rmSync(folder, { recursive: true });
      throw error;
    }));
  await keep(id);
  return id;
}

/** Lines of a job as sent. Throws ConfigError if they differ from those read before. */
function* sent({ lines, name, sha256 }: Job): Generator<string> {
  const hash = createHash("sha256");
  for (const line of lines()) {
    const whole = `${line}\n`;
    hash.update(whole);
    yield whole;
  }
  if (hash.digest("hex") !== sha256) throw new ConfigError(`${name} changed while it was read.`);
}

/** Shows progress until the batch has ended; null if interrupted. */
async function watch(client: JobsClient, id: string, { aborted }: Interruption): Promise<BatchObject | null> {
  const progress = progressLine();
  const startMs = performance.now();
  let first: BatchObject | null = null;
  for (;;) {
    const now = await client.batch(id);
    first ??= now;
    if (hasEnded(now)) {
      progress.clear();
      return now;
    }
    const { total = 0, completed = 0, failed = 0 } = now.request_counts ?? {};
    progress.show(
      progressText(now, first, (performance.now() - startMs) / 1000),
      (completed + failed) / Math.max(1, total),
    );
    const more = await Promise.race([aborted, Bun.sleep(POLL_MS).then(() => true)]);
    if (more === null) {
      progress.clear();
      return null;
    }
  }
}
