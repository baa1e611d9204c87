/** `bunting batch`: runs a file of prompts, on a server or on one that is started for it, and goes on where it was stopped. */

import { createHash, randomUUID } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { ConfigError, flag, integer, makeConfig, optional, text, type Values } from "../config.ts";
import { startServer } from "../start.ts";
import { batchLines } from "./batch-input.ts";
import { startedSettings } from "./chat-command.ts";
import { type BatchObject, hasEnded, JobsClient } from "./jobs-client.ts";
import { progressLine, showLoading } from "./progress.ts";

const POLL_MS = 250;
const WINDOW = "365d";

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
  apiKey: optional({ placeholder: "key", sentence: "Key to send." }),
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

/** Runs to the end, or until Ctrl-C; resolves to the exit code. */
export async function batch(options: BatchOptions, input: string, dir: string | null): Promise<number> {
  const { output, url, apiKey } = options;
  if (output === "") throw new ConfigError("Say with -o where results go.");
  if (existsSync(output)) throw new ConfigError(`${output} exists already.`);
  if (url !== null && dir !== null)
    throw new ConfigError("A model is for a server that is started; --url names one that runs.");
  const folder = `${output}.job`;
  mkdirSync(folder, { recursive: true });
  const job = { ...readInput(input, options), name: basename(input) };
  if (url !== null) return await run(new JobsClient({ url, apiKey }), job, folder, options);

  const progress = progressLine();
  const { device, threads, dtype, quant, packedWeights, maxModelLen, kvCacheGib } = options;
  const started = { device, threads, dtype, quant, packedWeights, maxModelLen, kvCacheGib };
  const limits = { batchLinesMax: 10_000_000, batchFileMib: 2 ** 20 };
  const config = makeConfig({ port: 0, data: join(folder, "data"), ...limits, ...started });
  const server = await startServer(config, dir, { onPlan: () => {}, onProgress: showLoading(progress) });
  progress.clear();
  let code = 1;
  try {
    code = await run(new JobsClient({ url: server.url, apiKey: null }), job, folder, options);
  } finally {
    await server.drain(0);
    if (code === 0) rmSync(folder, { recursive: true, force: true });
  }
  return code;
}

interface Job {
  readonly name: string;
  readonly lines: readonly string[];
  readonly endpoint: string;
}

function readInput(input: string, { promptTemplate, maxTokens }: BatchOptions) {
  let read: string;
  try {
    read = readFileSync(input, "utf8");
  } catch (error) {
    throw new ConfigError(`${input} cannot be read: ${error instanceof Error ? error.message : error}`);
  }
  return batchLines(input, read, { template: promptTemplate, maxTokens });
}

async function run(client: JobsClient, job: Job, folder: string, options: BatchOptions): Promise<number> {
  const id = await begun(client, job, join(folder, "state.json"));
  const interrupted = Promise.withResolvers<null>();
  const onSignal = (): void => interrupted.resolve(null);
  process.once("SIGINT", onSignal);
  process.once("SIGTERM", onSignal);
  const ended = await watch(client, id, interrupted.promise);
  process.removeListener("SIGINT", onSignal);
  process.removeListener("SIGTERM", onSignal);
  if (ended === null) {
    console.error("Stopped. The same command goes on where this one was.");
    return 130;
  }
  for (const { line, message } of ended.errors?.data ?? []) {
    console.error(line === null ? message : `Line ${line}: ${message}`);
  }
  if (ended.status === "failed") {
    rmSync(folder, { recursive: true, force: true });
    return 1;
  }
  await write(client, ended, job.lines, options);
  rmSync(folder, { recursive: true, force: true });
  const { completed = 0, failed = 0 } = ended.request_counts ?? {};
  console.log(`${completed} answered, ${failed} failed: ${options.output}`);
  return 0;
}

/** The batch of these lines: the one that was begun before, or a new one. */
async function begun(client: JobsClient, { name, lines, endpoint }: Job, path: string): Promise<string> {
  const whole = `${lines.join("\n")}\n`;
  const sha256 = createHash("sha256").update(whole).digest("hex");
  const before = existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as State) : null;
  if (before !== null && before.sha256 !== sha256)
    throw new ConfigError(`The input is not the one that ${path} was begun with: remove it to begin anew.`);
  if (before !== null && before.batch !== null) return before.batch;
  const key = before?.key ?? randomUUID();
  const keep = (batch: string | null): void =>
    writeWhole(path, JSON.stringify({ sha256, key, batch } satisfies State));
  // Kept before there is a batch, so that a command that dies while it creates one begins no second one when it is run again.
  if (before === null) keep(null);
  const found = before === null ? null : await client.findBatch(key);
  const { id } = found ?? (await client.create(await client.upload(whole, name), endpoint, WINDOW, key));
  keep(id);
  return id;
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

async function write(
  client: JobsClient,
  { output_file_id: answers, error_file_id: failures }: BatchObject,
  lines: readonly string[],
  { output, ordered }: BatchOptions,
): Promise<void> {
  const answered = answers == null ? "" : await client.content(answers);
  const failed = failures == null ? "" : await client.content(failures);
  if (!ordered) {
    if (failed !== "") writeWhole(`${output}.errors`, failed);
    writeWhole(output, answered);
    return;
  }
  const byId = new Map<unknown, string>();
  for (const line of `${answered}${failed}`.split("\n")) {
    if (line !== "") byId.set((JSON.parse(line) as { readonly custom_id: unknown }).custom_id, line);
  }
  const sorted = lines.map((line) =>
    byId.get((JSON.parse(line) as { readonly custom_id: unknown }).custom_id),
  );
  writeWhole(output, sorted.map((line) => `${line}\n`).join(""));
}

/** All of it or nothing. */
function writeWhole(path: string, content: string): void {
  writeFileSync(`${path}.part`, content);
  renameSync(`${path}.part`, path);
}
