/** A batch as large as the limits allow: what a server's memory comes to, from its start to the last result, beside that of a smaller one. */

import { readFileSync } from "node:fs";
import { hasEnded, JobsClient } from "../../server/cli/jobs-client.ts";
import type { Started } from "../started-server.ts";

/** MiB that a server had in memory at most, until then. */
export interface Peaks {
  readonly ready: number;
  readonly uploaded: number;
  readonly ended: number;
  readonly seconds: number;
}

const POLL_MS = 200;

/** Runs `lines` requests of `lineBytes` bytes each on `server`. */
export async function largeBatch(server: Started, lines: number, lineBytes: number): Promise<Peaks> {
  const client = new JobsClient(server.target);
  const ready = peakMib(server.pid);
  const startMs = performance.now();
  const file = await client.upload(textOf(lines, lineBytes), "large.jsonl");
  const uploaded = peakMib(server.pid);
  let batch = await client.create(file, "/v1/completions", "24h");
  for (; !hasEnded(batch); batch = await client.batch(batch.id)) await Bun.sleep(POLL_MS);
  if (batch.request_counts?.completed !== lines) throw new Error(`the batch is ${JSON.stringify(batch)}`);
  return { ready, uploaded, ended: peakMib(server.pid), seconds: (performance.now() - startMs) / 1000 };
}

/** Simulated engines compute as slowly as others, and prompts take no memory once they are tokenised: most of a line is a field that no model reads. */
function textOf(lines: number, lineBytes: number): string {
  const all = Array.from({ length: lines }, (_, index) => {
    const line = (user: string): string => {
      const body = { prompt: `${index} ships sailed on over the grey sea.`, max_tokens: 1, user };
      return JSON.stringify({ custom_id: String(index), method: "POST", url: "/v1/completions", body });
    };
    return line("x".repeat(lineBytes - 1 - line("").length));
  });
  return `${all.join("\n")}\n`;
}

function peakMib(pid: number): number {
  const [, kib] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))!;
  return Math.round(Number(kib) / 1024);
}
