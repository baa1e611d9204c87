/**
 * Batch as large as the limits allow, by `bunting batch` on a server: peak memory of both from the start to
 * the last result, compared with a smaller batch.
 */

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Started } from "../started-server.ts";

/** Peak memory in MiB, up to then. */
export interface Peaks {
  readonly ready: number;
  readonly uploaded: number;
  readonly ended: number;
  /** Peak memory of the command. */
  readonly command: number;
  readonly seconds: number;
}

const POLL_MS = 100;

/** Runs `lines` requests of `lineBytes` bytes each on `server`; `command` is bunting's, and files go to `folder`. */
export async function largeBatch(
  server: Started,
  command: readonly string[],
  folder: string,
  lines: number,
  lineBytes: number,
): Promise<Peaks> {
  const [input, output] = [join(folder, `${lines}.jsonl`), join(folder, `${lines}.out`)];
  writeFileSync(input, textOf(lines, lineBytes));
  const ready = peakMib(server.pid);
  const startMs = performance.now();
  const options = ["batch", input, "-o", output, "--ordered", "--url", server.target.url];
  const child = Bun.spawn([...command, ...options], { stdout: "pipe", stderr: "inherit" });
  let uploaded: number | null = null;
  let peak = 0;
  const poll = setInterval(() => {
    if (uploaded === null && hasBegun(join(`${output}.job`, "state.json"))) uploaded = peakMib(server.pid);
    if (child.exitCode === null) peak = Math.max(peak, peakMib(child.pid));
  }, POLL_MS);
  const said = await new Response(child.stdout).text();
  await child.exited;
  clearInterval(poll);
  if (!said.startsWith(`${lines} answered, 0 failed`) || uploaded === null) throw new Error(said);
  const seconds = (performance.now() - startMs) / 1000;
  return { ready, uploaded, ended: peakMib(server.pid), command: peak, seconds };
}

/** True once the command has recorded the id of its batch. */
function hasBegun(state: string): boolean {
  return existsSync(state) && (JSON.parse(readFileSync(state, "utf8")) as { batch: unknown }).batch !== null;
}

/**
 * Makes the lines. Most of a line is a field that no model reads: simulated engines compute as slowly as real
 * ones, and tokenized prompts take no memory.
 */
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

/** Peak memory of a process in MiB; 0 if it has just ended. */
function peakMib(pid: number): number {
  const found = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
  return Math.round(Number(found?.[1] ?? 0) / 1024);
}
