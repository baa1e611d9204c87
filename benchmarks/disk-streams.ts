/**
 * Gaps of streams while pages are written to disk and read from it, beside the same load without a disk: six
 * streams decode, and another client asks for long prompts one after the other, each twice. The KV cache is small,
 * so that the second time finds its pages on disk alone. Percentiles of the gaps, and bytes written and read.
 *
 *   npx bun benchmarks/disk-streams.ts [--mib 2048] [--streams 6] [--words 200] [--rounds 1]
 *
 * `--host` gives the GiB of the host's memory that keep the pages of a GPU (`--device cuda:0`), in place of a disk.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { SeededRandom } from "../base/random.ts";
import { startServer } from "./started-server.ts";

const { values } = parseArgs({
  options: {
    mib: { type: "string", default: "2048" },
    streams: { type: "string", default: "6" },
    words: { type: "string", default: "200" },
    rounds: { type: "string", default: "1" },
    device: { type: "string", default: "cpu" },
    host: { type: "string" },
  },
});
const wanted = Number(values.mib) * 2 ** 20;
/** Bytes of a KV page of the demo model in bf16. */
const PAGE_BYTES = 48 * 1024;
/** Prompts between the two requests of each one: more than the KV cache holds. */
const APART = 16;

interface Measured {
  readonly gapsMs: readonly number[];
  readonly prompts: number;
}

async function post(url: string, body: object, signal?: AbortSignal): Promise<Response> {
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    ...(signal === undefined ? {} : { signal }),
  });
  if (!response.ok) throw new Error(await response.text());
  return response;
}

/** Reads streams, one after the other, until `signal` aborts; adds the gaps between their chunks. */
async function readStreams(url: string, gapsMs: number[], signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const body = { prompt: "Once", max_tokens: 1000, ignore_eos: true, stream: true };
    try {
      const response = await post(url, body, signal);
      let lastMs = performance.now();
      for await (const _ of response.body!) {
        const nowMs = performance.now();
        gapsMs.push(nowMs - lastMs);
        lastMs = nowMs;
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }
}

async function bytesOf(url: string, event: string): Promise<number> {
  const metrics = await (await fetch(`${url}/metrics`)).text();
  const count = new RegExp(
    `^bunting_kv_${values.host === undefined ? "disk" : "host"}_total\\{.*event="${event}".*\\} (\\d+)`,
    "m",
  ).exec(metrics)?.[1];
  return Number(count ?? 0) * PAGE_BYTES;
}

/** `prompts`: number of prompts; null: runs until the disk has written and read enough. */
async function measure(args: readonly string[], prompts: number | null): Promise<Measured> {
  const random = new SeededRandom(1);
  const text = () =>
    Array.from({ length: Number(values.words) }, () => `w${Math.floor(random.unit() * 1e6)}`);
  const command = [process.execPath, "server/main.ts", "serve", "--kv-cache-gib", "0.05", ...args];
  const { target, stop } = await startServer([...command, "--device", values.device], process.cwd());
  const { url } = target;
  const stopping = new AbortController();
  const gapsMs: number[] = [];
  const reading = Array.from({ length: Number(values.streams) }, () =>
    readStreams(url, gapsMs, stopping.signal),
  );
  const asked: string[] = [];
  let done = 0;
  for (; prompts === null || done < prompts; done += 1) {
    asked.push(text().join(" "));
    await post(url, { prompt: asked.at(-1), max_tokens: 1 });
    if (asked.length > APART) await post(url, { prompt: asked.shift(), max_tokens: 1 });
    if (prompts !== null) continue;
    const [written, read] = [await bytesOf(url, "stored"), await bytesOf(url, "read")];
    if (written + read < wanted) continue;
    console.log(`${(written / 2 ** 20).toFixed(0)} MiB written, ${(read / 2 ** 20).toFixed(0)} MiB read`);
    done += 1;
    break;
  }
  stopping.abort();
  await Promise.all(reading);
  await stop();
  return { gapsMs, prompts: done };
}

function print(name: string, { gapsMs }: Measured): void {
  const sorted = gapsMs.toSorted((a, b) => a - b);
  const at = (share: number): string => sorted[Math.floor(share * (sorted.length - 1))]!.toFixed(1);
  if (values.host !== undefined)
    console.log(JSON.stringify({ streams: name, p50_ms: Number(at(0.5)), p99_ms: Number(at(0.99)) }));
  console.log(`${name}: p50 ${at(0.5)} ms, p90 ${at(0.9)} ms, p99 ${at(0.99)} ms of ${gapsMs.length} gaps`);
}

for (let round = 0; round < Number(values.rounds); round++) {
  const data = mkdtempSync(join(tmpdir(), "bunting-disk-streams-"));
  try {
    const { host } = values;
    const tier = host === undefined ? ["--kv-disk", "8", "--data", data] : ["--kv-host", host];
    const on = await measure(tier, null);
    print(host === undefined ? "with a disk" : "with host memory", on);
    print("without", await measure(["--kv-disk", "0"], on.prompts));
  } finally {
    rmSync(data, { recursive: true });
  }
}
