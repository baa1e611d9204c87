/**
 * Streams with drafts and without, while long prompts arrive beside them: tokens per second of all, and the 99th
 * percentile of the gaps between two pieces of a stream.
 *
 *   npx bun benchmarks/speculation-beside.ts <model> <streams> [option of serve …]
 */

import { tasks } from "./speculation/tasks.ts";
import { startServer } from "./started-server.ts";

const [model, count, ...options] = process.argv.slice(2);
const streams = Number(count);
const ROUNDS = 5;
const TOKENS = 96;
const BESIDE_MS = 600;
const article = tasks.quote.repeat(3);

interface Played {
  readonly perSecond: number;
  readonly gapMs: number;
  readonly accepted: number;
  readonly texts: readonly string[];
}

async function post(url: string, body: object, signal?: AbortSignal): Promise<Response> {
  return await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ cache_salt: crypto.randomUUID(), ignore_eos: true, ...body }),
    ...(signal === undefined ? {} : { signal }),
  });
}

/** Reads a stream; `gaps` gets the milliseconds between its pieces. */
async function stream(
  url: string,
  prompt: string,
  seed: number,
  gaps: number[],
): Promise<{ text: string; accepted: number }> {
  const messages = [{ role: "user", content: prompt }];
  const response = await post(url, {
    messages,
    max_tokens: TOKENS,
    temperature: 0.7,
    seed,
    stream: true,
    timings_per_token: true,
  });
  const decoder = new TextDecoder();
  let [text, rest, accepted, lastMs] = ["", "", 0, 0];
  for await (const bytes of response.body!) {
    const nowMs = performance.now();
    if (lastMs > 0) gaps.push(nowMs - lastMs);
    lastMs = nowMs;
    const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = lines.pop()!;
    for (const line of lines) {
      if (!line.startsWith("data: {")) continue;
      const { choices, timings } = JSON.parse(line.slice(6));
      text += choices[0]?.delta.content ?? "";
      accepted = timings?.draft_n_accepted ?? accepted;
    }
  }
  return { text, accepted };
}

async function play(url: string, prompt: string, round: number): Promise<Played> {
  const gaps: number[] = [];
  const ended = new AbortController();
  const beside = (async () => {
    for (let index = 0; !ended.signal.aborted; index++) {
      const messages = [{ role: "user", content: `${round} ${index} ${article}` }];
      void post(url, { messages, max_tokens: 1 }, ended.signal).catch(() => undefined);
      await Bun.sleep(BESIDE_MS);
    }
  })();
  const startMs = performance.now();
  const all = await Promise.all(
    Array.from({ length: streams }, (_, i) => stream(url, prompt, 100 * round + i, gaps)),
  );
  const seconds = (performance.now() - startMs) / 1000;
  ended.abort();
  await beside;
  gaps.sort((a, b) => a - b);
  const accepted = all.reduce((sum, one) => sum + one.accepted, 0);
  return {
    perSecond: (streams * TOKENS) / seconds,
    gapMs: gaps[Math.floor(0.99 * gaps.length)]!,
    accepted: accepted / (streams * TOKENS),
    texts: all.map(({ text }) => text),
  };
}

const serve = (speculate: string) =>
  startServer(
    ["npx", "bun", "server/main.ts", "serve", model!, ...options, "--speculate", speculate],
    process.cwd(),
  );
const servers = [await serve("off"), await serve("auto")] as const;
const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[values.length >> 1]!;

console.log(
  `${streams} streams ${options.join(" ")}: tokens per second without and with drafts, ratio; p99 gap in ms, ratio; accepted`,
);
for (const [name, prompt] of Object.entries(tasks)) {
  const runs: [Played[], Played[]] = [[], []];
  let differing = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const order = round % 2 === 0 ? [0, 1] : [1, 0];
    const played: Played[] = [];
    for (const index of order) played[index] = await play(servers[index as 0 | 1].target.url, prompt, round);
    differing += played[0]!.texts.filter((text, i) => text !== played[1]!.texts[i]).length;
    // The first round only trains the cost models.
    if (round > 0) for (const index of [0, 1] as const) runs[index].push(played[index]!);
  }
  const of = (index: 0 | 1, value: (one: Played) => number): number => median(runs[index].map(value));
  const ratio = (value: (one: Played) => number): number =>
    median(runs[1].map((one, i) => value(one) / value(runs[0][i]!)));
  const [rate, gap] = [({ perSecond }: Played) => perSecond, ({ gapMs }: Played) => gapMs];
  console.log(
    `${name}: ${of(0, rate).toFixed(1)} and ${of(1, rate).toFixed(1)}, ${ratio(rate).toFixed(3)}; ${of(0, gap).toFixed(1)} and ${of(1, gap).toFixed(1)}, ${ratio(gap).toFixed(3)}; ${(100 * of(1, ({ accepted }) => accepted)).toFixed(0)} %; ${differing} texts differ`,
  );
}
for (const server of servers) await server.stop();
