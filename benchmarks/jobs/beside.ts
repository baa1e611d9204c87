/**
 * Latency of chats beside a job. The same chats run once with a job and twice without, by turns in one run of
 * the server.
 */

import type { Target } from "../../server/cli/client.ts";
import { hasEnded, JobsClient } from "../../server/cli/jobs-client.ts";

/** Times in milliseconds, of the chats in all turns of a kind. */
export interface Felt {
  readonly firstTokens: number[];
  readonly gaps: number[];
}

export interface Beside {
  readonly without: Felt;
  readonly beside: Felt;
  /** Second turn without a job: its difference from the first one is noise. */
  readonly again: Felt;
  /** Tokens per second of the job beside chats, as a share of those alone. */
  readonly jobShare: number;
}

export interface Chats {
  readonly rounds: number;
  /** Arrival of each chat in a turn, in milliseconds from its start: the same in all turns. */
  readonly arrivalsMs: readonly number[];
  readonly prompt: () => string;
  readonly outputTokens: number;
  /** Lines of a job that does not end within a turn. */
  readonly job: string;
}

export async function besideJob(target: Target, chats: Chats): Promise<Beside> {
  const felt = { without: noneFelt(), beside: noneFelt(), again: noneFelt() };
  const jobs = new JobsClient(target);
  const file = await jobs.upload(chats.job, "in.jsonl");
  const rates = { alone: [] as number[], beside: [] as number[] };
  const withJob = async (): Promise<void> => {
    const { id } = await jobs.create(file, "/v1/completions", "24h");
    while ((await jobTokens(target)) === (await later(jobTokens, target)));
    rates.alone.push(
      await rateOf(target, async () => {
        await Bun.sleep(JOB_ALONE_MS);
      }),
    );
    rates.beside.push(
      await rateOf(target, async () => {
        await turn(target, chats, felt.beside);
      }),
    );
    const { status } = await jobs.cancel(id);
    if (status !== "cancelling") throw new Error(`the job ended before its turn did: ${status}`);
    while (!hasEnded(await jobs.batch(id))) await Bun.sleep(20);
  };
  // Warm-up of threads, caches and the engine's cost model.
  await turn(target, chats, noneFelt());
  const turns = [() => turn(target, chats, felt.without), withJob, () => turn(target, chats, felt.again)];
  for (let round = 0; round < chats.rounds; round++) {
    for (const next of round % 2 === 0 ? turns : turns.toReversed()) await next();
  }
  const sum = (list: readonly number[]): number => list.reduce((all, one) => all + one, 0);
  return { ...felt, jobShare: sum(rates.beside) / sum(rates.alone) };
}

const JOB_ALONE_MS = 2000;

function noneFelt(): Felt {
  return { firstTokens: [], gaps: [] };
}

/** Runs an open-loop turn: chats arrive whether or not earlier ones have ended. */
async function turn(target: Target, chats: Chats, felt: Felt): Promise<void> {
  await Promise.all(
    chats.arrivalsMs.map(async (arrivalMs) => {
      await Bun.sleep(arrivalMs);
      await stream(target, chats, felt);
    }),
  );
}

async function later<Value>(read: (target: Target) => Promise<Value>, target: Target): Promise<Value> {
  await Bun.sleep(100);
  return await read(target);
}

/** Returns the tokens per second of jobs during `work`. */
async function rateOf(target: Target, work: () => Promise<void>): Promise<number> {
  const [startMs, before] = [performance.now(), await jobTokens(target)];
  await work();
  return ((await jobTokens(target)) - before) / ((performance.now() - startMs) / 1000);
}

async function jobTokens({ url }: Target): Promise<number> {
  const metrics = await (await fetch(`${url}/metrics`)).text();
  const lines = metrics.split("\n").filter((line) => /^bunting_work_tokens_total\{.*jobs/.test(line));
  return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

async function stream({ url }: Target, { prompt, outputTokens }: Chats, felt: Felt): Promise<void> {
  const body = {
    prompt: prompt(),
    max_tokens: outputTokens,
    ignore_eos: true,
    temperature: 0,
    stream: true,
  };
  let lastMs = performance.now();
  let isFirst = true;
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(await response.text());
  for await (const bytes of response.body!) {
    const events = new TextDecoder().decode(bytes).split("data: {").length - 1;
    if (events === 0) continue;
    const nowMs = performance.now();
    (isFirst ? felt.firstTokens : felt.gaps).push(nowMs - lastMs);
    // Events of one network chunk arrived together.
    for (let event = 1; event < events; event++) felt.gaps.push(0);
    isFirst = false;
    lastMs = nowMs;
  }
}
