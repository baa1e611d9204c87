/** `bunting batch`: runs a file of prompts, on a server or on one that is started for it, and goes on where it was stopped. */

import { createHash, randomUUID } from "node:crypto";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { ConfigError, flag, integer, makeConfig, optional, text, type Values } from "../config.ts";
import { ownFolder } from "../own-files.ts";
import { startServer } from "../start.ts";
import { type BatchInput, batchInput } from "./batch-input.ts";
import { writeOrdered, writeResults, writeWhole } from "./batch-output.ts";
import { startedSettings } from "./chat-command.ts";
import { ServerError } from "./client.ts";
import { linesOf } from "./file-lines.ts";
import { type BatchObject, hasEnded, JobsClient } from "./jobs-client.ts";
import { progressLine, showLoading } from "./progress.ts";
import { apiKeySetting, targetOf } from "./target.ts";

const POLL_MS = 250;
const WINDOW = "365d";
const GOES_ON = "The same command goes on where this one was.";

export const batchSettings = Object.freeze({
  output: text({
    default: "",
    placeholder: "file",
    sentence: "Where results go, one JSON object per line. Must be given.",
  }),
  url: optional({
    placeholder: "url",
    defaultText: "one is started for this",
    sentence: "The server to run it on.",
  }),
  apiKey: apiKeySetting,
  promptTemplate: optional({
    sentence: "How a prompt is made of a row of CSV, {column} by column, or of a line of text, {line}.",
  }),
  maxTokens: integer({
    unit: "tokens",
    default: 1024,
    min: 1,
    max: 2 ** 24,
    sentence: "Most tokens of an answer to a prompt of CSV or text.",
  }),
  ordered: flag({
    sentence:
      "One line for each line of the input, in its order, failed ones too; else those go to a file of their own.",
  }),
  ...startedSettings,
});

export type BatchOptions = Values<typeof batchSettings>;

/** What is kept beside the output while it is not there. */
interface State {
  /** Of the lines that were sent. */
  readonly sha256: string;
  /** In the batch's metadata: the server knows by it which batch is this one. */
  readonly key: string;
  /** Its id; null: it may not have been created yet. */
  readonly batch: string | null;
}

/** What the command ends with, beside 1 for what cannot be run at all, or for a server that cannot be reached. */
const exitCodes = { answered: 0, someFailed: 3, stopped: 130 } as const;

export const batchHelp = `
Exit codes:
  0    every line was answered
  1    nothing was run, or the server cannot be reached; the reason is said
  3    the results are there, but some lines failed
  130  stopped by Ctrl-C; the same command goes on`;

/** Runs to the end, or until Ctrl-C; resolves to the exit code. */
export async function batch(options: BatchOptions, input: string, dir: string | null): Promise<number> {
  const { output, url, apiKey } = options;
  if (output === "") throw new ConfigError("Say with -o where results go.");
  if (existsSync(output))
    throw new ConfigError(`${output} exists already: remove it, or name another file with -o.`);
  if (url !== null && dir !== null)
    throw new ConfigError("A model is for a server that is started; --url names one that runs.");
  const folder = `${output}.job`;
  const job = readInput(input, options);
  if (url !== null) return await run(new JobsClient(targetOf(url, apiKey)), job, folder, options);

  const progress = progressLine();
  const { device, threads, dtype, quant, packedWeights, maxModelLen, kvCacheGib } = options;
  const started = { device, threads, dtype, quant, packedWeights, maxModelLen, kvCacheGib };
  const limits = { batchLinesMax: 10_000_000, batchFileMib: 2 ** 20 };
  const config = makeConfig({ port: 0, data: join(folder, "data"), ...limits, ...started });
  try {
    const server = await startServer(config, dir, { onPlan: () => {}, onProgress: showLoading(progress) });
    progress.clear();
    const client = new JobsClient({ url: server.url, apiKey: null });
    return await run(client, job, folder, options).finally(() => server.drain(0));
  } finally {
    // A server writes to it until it has ended; without a state there is nothing to go on with.
    if (!existsSync(stateOf(folder))) rmSync(folder, { recursive: true, force: true });
  }
}

interface Job extends BatchInput {
  readonly name: string;
  /** Of its lines. */
  readonly sha256: string;
}

/** Reads the input once, so that nothing begins with one that cannot be read to its end. */
function readInput(path: string, { promptTemplate, maxTokens }: BatchOptions): Job {
  const rules = { template: promptTemplate, maxTokens };
  const input = batchInput(path, () => linesOf(path), rules);
  const hash = createHash("sha256");
  for (const line of input.lines()) hash.update(`${line}\n`);
  return { ...input, name: basename(path), sha256: hash.digest("hex") };
}

async function run(client: JobsClient, job: Job, folder: string, options: BatchOptions): Promise<number> {
  const id = await begun(client, job, folder);
  try {
    return await finish(client, id, job, folder, options);
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    throw new ServerError(error.status, `${error.message} ${GOES_ON}`);
  }
}

/** Waits for the end of a batch, and writes its results. */
async function finish(
  client: JobsClient,
  id: string,
  job: Job,
  folder: string,
  options: BatchOptions,
): Promise<number> {
  const interrupted = Promise.withResolvers<null>();
  const onSignal = (): void => interrupted.resolve(null);
  process.once("SIGINT", onSignal);
  process.once("SIGTERM", onSignal);
  const ended = await watch(client, id, interrupted.promise);
  process.removeListener("SIGINT", onSignal);
  process.removeListener("SIGTERM", onSignal);
  if (ended === null) {
    console.error(`Stopped. ${GOES_ON}`);
    return exitCodes.stopped;
  }
  for (const { line, message } of ended.errors?.data ?? []) {
    console.error(line === null ? message : `Line ${line}: ${message}`);
  }
  if (ended.status === "failed") {
    rmSync(folder, { recursive: true, force: true });
    return 1;
  }
  if (options.ordered) await writeOrdered(client, ended, job.lines(), options.output, folder);
  else await writeResults(client, ended, options.output);
  rmSync(folder, { recursive: true, force: true });
  const { completed = 0, failed = 0 } = ended.request_counts ?? {};
  const failures = failed > 0 && !options.ordered ? ` (${options.output}.errors)` : "";
  console.log(`${completed} answered, ${failed} failed${failures}: ${options.output}`);
  if (ended.status !== "completed")
    console.error(`The job is ${ended.status}: lines that had not run by then failed.`);
  return failed > 0 ? exitCodes.someFailed : exitCodes.answered;
}

function stateOf(folder: string): string {
  return join(folder, "state.json");
}

/** The batch of these lines: the one that was begun before, or a new one. */
async function begun(client: JobsClient, job: Job, folder: string): Promise<string> {
  const { name, endpoint, sha256 } = job;
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
  // Kept before there is a batch, so that a command that dies while it creates one begins no second one when it is run again.
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

/** A job's lines as they are sent. Throws ConfigError when they are not those that were read before. */
function* sent({ lines, name, sha256 }: Job): Generator<string> {
  const hash = createHash("sha256");
  for (const line of lines()) {
    const whole = `${line}\n`;
    hash.update(whole);
    yield whole;
  }
  if (hash.digest("hex") !== sha256) throw new ConfigError(`${name} changed while it was read.`);
}

/** Shows how far it is until it has ended; null when it was interrupted. */
async function watch(
  client: JobsClient,
  id: string,
  interrupted: Promise<null>,
): Promise<BatchObject | null> {
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
    const more = await Promise.race([interrupted, Bun.sleep(POLL_MS).then(() => true)]);
    if (more === null) {
      progress.clear();
      return null;
    }
  }
}

/** "120 of 400, 1,204 tokens/s, 56 % of the prompts' tokens saved, 2 min left". */
export function progressText(now: BatchObject, first: BatchObject, seconds: number): string {
  const { total = 0, completed = 0, failed = 0 } = now.request_counts ?? {};
  const done = completed + failed;
  if (now.paused_by != null) return `${done} of ${total}, paused: ${now.paused_by}`;
  if (now.status === "validating") return "reading";
  const before = (first.request_counts?.completed ?? 0) + (first.request_counts?.failed ?? 0);
  const tokens = tokensOf(now) - tokensOf(first);
  const parts = [`${done} of ${total}`];
  if (tokens > 0) parts.push(`${Math.round(tokens / seconds).toLocaleString("en")} tokens/s`);
  const { input_tokens: prompts = 0, input_tokens_details: details } = now.usage ?? {};
  if (prompts > 0)
    parts.push(
      `${Math.round((100 * (details?.cached_tokens ?? 0)) / prompts)} % of the prompts' tokens saved`,
    );
  if (done > before) parts.push(`${duration(((total - done) * seconds) / (done - before))} left`);
  return parts.join(", ");
}

function tokensOf({ usage }: BatchObject): number {
  return usage === undefined ? 0 : usage.input_tokens + usage.output_tokens;
}

function duration(seconds: number): string {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
