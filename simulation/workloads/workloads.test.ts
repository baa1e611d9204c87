/** Trace parsers on samples of their formats, and drawn workloads against the published statistics. */

import { expect, test } from "bun:test";
import { SeededRandom } from "../../base/random.ts";
import type { Arrival, Workload } from "../workload.ts";
import { agentSessions, agentWorkload, parseAgentSession } from "./agents.ts";
import { azureCalls, azureWorkload, parseAzure } from "./azure.ts";
import { chatLengths, chatWorkload, parseLengths } from "./chat.ts";
import { conversations, conversationWorkload, parseMooncake } from "./conversation.ts";
import { documentWorkload } from "./documents.ts";
import { mixedWorkload } from "./mixed.ts";
import { burstyGapMs, exponentialGapMs, promptOf, tokensOfText } from "./parts.ts";
import { parseToolBench, tools, toolsLike, toolWorkload } from "./tools.ts";
import { parseNextQa, videos, videoWorkload } from "./videos.ts";
import { parseVllmLog, vllmLogWorkload } from "./vllm-log.ts";

function all(workload: Workload): Arrival[] {
  const arrivals: Arrival[] = [];
  for (let next = workload.next(); next !== null; next = workload.next()) arrivals.push(next);
  return arrivals;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function quantile(values: readonly number[], share: number): number {
  return [...values].sort((a, b) => a - b)[Math.floor(share * (values.length - 1))]!;
}

/** Expects a value within 5 %. */
function expectNear(value: number, wanted: number): void {
  expect(value).toBeGreaterThan(wanted * 0.95);
  expect(value).toBeLessThan(wanted * 1.05);
}

function commonPrefix(a: Int32Array, b: Int32Array): number {
  const differs = a.findIndex((token, index) => token !== b[index]);
  return differs === -1 ? a.length : differs;
}

test("prompts begin alike as far as their parts do, and never hold the vocabulary's last token", () => {
  const one = promptOf([
    { name: 1, tokens: 700 },
    { name: 2, tokens: 300 },
  ])();
  const other = promptOf([
    { name: 1, tokens: 700 },
    { name: 3, tokens: 300 },
  ])();
  expect(one.length).toBe(1000);
  expect(commonPrefix(one, other)).toBe(700);
  const small = promptOf([{ name: 5, tokens: 10_000 }], 64)();
  expect(Math.max(...small)).toBe(62);
  expect(new Set(small).size).toBe(63);
});

test("texts share as many tokens as they have fours of characters in common", () => {
  expect(tokensOfText("abcdefghij").length).toBe(3);
  expect(tokensOfText("abcdefghij").slice(0, 2)).toEqual(tokensOfText("abcdefgh--").slice(0, 2));
  expect(tokensOfText("abcd")).not.toEqual(tokensOfText("abce"));
});

test("gaps have the mean and the variation that were asked for", () => {
  const gapsOf = (draw: (random: SeededRandom) => number): number[] => {
    const random = new SeededRandom(3);
    return Array.from({ length: 200_000 }, () => draw(random));
  };
  const variation = (gaps: readonly number[]): number =>
    Math.sqrt(mean(gaps.map((gap) => gap * gap)) / mean(gaps) ** 2 - 1);
  const even = gapsOf((random) => exponentialGapMs(random, 250));
  expectNear(mean(even), 250);
  expectNear(variation(even), 1);
  const bursty = gapsOf((random) => burstyGapMs(random, 390, 5));
  expectNear(mean(bursty), 390);
  expectNear(variation(bursty), 5);
});

test("drawn chats have the published medians and tails", () => {
  const lengths = chatLengths(20_000, 1);
  const [prompts, outputs] = [lengths.map((row) => row.promptTokens), lengths.map((row) => row.outputTokens)];
  expectNear(quantile(prompts, 0.5), 1730);
  expectNear(quantile(prompts, 0.9), 5696);
  expectNear(quantile(outputs, 0.5), 415);
  expectNear(quantile(outputs, 0.9), 834);
});

test("a table of lengths is read by the names of its columns", () => {
  const csv = "num_prefill_tokens,num_decode_tokens,x\n74,918,0.1\n\n290,0,1\n12,7,1\n";
  expect(parseLengths(csv)).toEqual([
    { promptTokens: 74, outputTokens: 918 },
    { promptTokens: 12, outputTokens: 7 },
  ]);
});

test("a chat workload keeps its calls and scales its times with the rate", () => {
  const at = (callsPerSecond: number): Arrival[] =>
    all(chatWorkload(chatLengths(500, 1), { seed: 4, callsPerSecond, calls: 400 }));
  const [slow, fast] = [at(1), at(4)];
  expect(slow.length).toBe(400);
  expect(fast.map((arrival) => arrival.outputTokens)).toEqual(slow.map((arrival) => arrival.outputTokens));
  expect(slow[399]!.atMs).toBeCloseTo(4 * fast[399]!.atMs, 6);
  expect([...slow[7]!.promptTokens()]).toEqual([...fast[7]!.promptTokens()]);
  expect(commonPrefix(slow[0]!.promptTokens(), slow[1]!.promptTokens())).toBe(0);
  expect(slow.every((arrival) => arrival.tokensMax >= arrival.outputTokens)).toBe(true);
});

test("the cloud's calls come at their times", () => {
  const csv = [
    "TIMESTAMP,ContextTokens,GeneratedTokens",
    "2023-11-16 23:59:59.5000000,4808,10",
    "2023-11-17 00:00:00.2500000,3180,8",
  ].join("\n");
  const rows = parseAzure(csv);
  expect(rows).toEqual([
    { atMs: 0, promptTokens: 4808, outputTokens: 10 },
    { atMs: 750, promptTokens: 3180, outputTokens: 8 },
  ]);
  const arrivals = all(azureWorkload(rows, { seed: 1, calls: 9, timeScale: 2 }));
  expect(arrivals.map((arrival) => arrival.atMs)).toEqual([0, 1500]);
  const drawn = azureCalls(50_000, 2);
  expectNear(
    quantile(
      drawn.map((row) => row.promptTokens),
      0.5,
    ),
    1470,
  );
  expectNear(
    quantile(
      drawn.map((row) => row.outputTokens),
      0.75,
    ),
    24,
  );
});

test("a conversation's turns share the blocks that the trace names alike", () => {
  const rows = parseMooncake(
    [
      '{"timestamp": 0, "input_length": 1200, "output_length": 5, "hash_ids": [0, 1, 2]}',
      '{"timestamp": 50, "input_length": 1300, "output_length": 7, "hash_ids": [0, 1, 9]}',
    ].join("\n"),
  );
  const arrivals = all(conversationWorkload(rows, { calls: 5, timeScale: 0.5 }));
  expect(arrivals.map(({ atMs, outputTokens }) => [atMs, outputTokens])).toEqual([
    [0, 5],
    [25, 7],
  ]);
  const [first, second] = arrivals.map((arrival) => arrival.promptTokens()) as [Int32Array, Int32Array];
  expect([first.length, second.length]).toEqual([1200, 1300]);
  expect(commonPrefix(first, second)).toBe(1024);
});

test("drawn conversations have whole blocks, times in order, and prefixes in common", () => {
  const calls = conversations({ callsPerSecond: 3, calls: 3000 }, 1);
  expect(calls.length).toBe(3000);
  expect(calls.every((call) => call.blocks.length === Math.ceil(call.promptTokens / 512))).toBe(true);
  expect(calls.every((call, index) => index === 0 || calls[index - 1]!.atMs <= call.atMs)).toBe(true);
  const seen = new Set<number>();
  let known = 0;
  for (const block of calls.flatMap((call) => call.blocks)) {
    if (seen.has(block)) known += 1;
    seen.add(block);
  }
  const share = known / calls.reduce((sum, call) => sum + call.blocks.length, 0);
  expect(share).toBeGreaterThan(0.3);
  expect(share).toBeLessThan(0.6);
});

test("videos are read with their quoted questions and cut to the longest", () => {
  const csv = [
    "video,frame_count,width,height,question,answer,qid,type,a0,a1,a2,a3,a4",
    '77,300,1,1,"who, then, is ""he""",1,0,CW,a,b,c,d,e',
    "77,300,1,1,where is this place,1,1,DL,mall,river,swimming pool,living room,mountain",
    "78,1500,1,1,why,1,1,DL,a,b,c,d,e",
  ].join("\r\n");
  expect(parseNextQa(csv)).toEqual([
    { tokens: 2560, questionTokens: [12 + Math.ceil((18 + 5) / 4), 12 + Math.ceil((19 + 41) / 4)] },
    { tokens: 8192, questionTokens: [12 + Math.ceil(8 / 4)] },
  ]);
});

test("questions about one video share the video and nothing else", () => {
  const options = { seed: 1, callsPerSecond: 3, calls: 2000, videosMax: 10 };
  const arrivals = all(videoWorkload(videos(1000, 1), options));
  expectNear((arrivals.at(-1)!.atMs / arrivals.length) * 3, 1000);
  const [first, ...others] = arrivals.slice(0, 100).map((arrival) => arrival.promptTokens());
  const shares = new Set(others.map((prompt) => commonPrefix(first!, prompt)));
  expect(shares.size).toBe(2);
  expect(shares).toContain(0);
  expect(Math.max(...shares)).toBeGreaterThanOrEqual(2560);
  expectNear(mean(videos(1000, 1).map((video) => video.tokens)), 6800);
});

test("questions about documents share the root, the document and the section, and nothing else", () => {
  const load = {
    rootTokens: 50,
    documents: 4,
    documentTokens: { least: 300, most: 300 },
    skew: 1,
    sections: 2,
    sectionTokens: { least: 200, most: 200 },
    suffixTokens: { least: 20, most: 30 },
    outputTokens: { least: 5, most: 9 },
    tokensMax: 8,
    calls: 2000,
    callsPerSecond: 2,
    variation: 1,
    tenants: 3,
  };
  const calls = all(documentWorkload(load, 1));
  const prompts = calls.map(({ promptTokens }) => promptTokens());
  const common = new Set(prompts.slice(1).map((prompt) => commonPrefix(prompts[0]!, prompt)));
  expect([...common].sort((a, b) => a - b)).toEqual([50, 350, 550]);
  expect(calls.every(({ tokensMax, outputTokens }) => tokensMax === Math.max(8, outputTokens))).toBe(true);
  expect(new Set(calls.map(({ service }) => service.tenant))).toEqual(new Set(["0", "1", "2"]));
  expectNear(calls.at(-1)!.atMs, 1_000_000);
  // With popularity 1/k, the most popular of four has 12 of 25 calls.
  const counts = Map.groupBy(prompts, (prompt) => prompt[50]!);
  expectNear(Math.max(...[...counts.values()].map((same) => same.length)), 960);
});

test("tools have the published lengths, popularity and sharing", () => {
  const options = { seed: 1, callsPerSecond: 36, calls: 8000, exponent: 1.1 };
  const arrivals = all(toolWorkload(tools(320, 1), options));
  expectNear(mean(arrivals.map((arrival) => arrival.outputTokens)), 43);
  const prompts = arrivals.slice(0, 1000).map((arrival) => arrival.promptTokens());
  expect(commonPrefix(prompts[0]!, prompts[1]!)).toBeGreaterThanOrEqual(165);
  const counts = new Map<number, number>();
  for (const prompt of prompts) counts.set(prompt[200]!, (counts.get(prompt[200]!) ?? 0) + 1);
  const mostPopular = Math.max(...counts.values()) / prompts.length;
  expect(mostPopular).toBeGreaterThan(0.15);
  expect(mostPopular).toBeLessThan(0.26);
  expectNear(mean(tools(5000, 1)), 1395);
  const like = toolsLike(
    parseToolBench('[{"api_list":[1]},{"api_list":[22222222222]},{"api_list":[1]}]'),
    40,
    1,
  );
  expect(new Set(like).size).toBe(2);
  expectNear(mean(like), 1395);
});

test("an agent's next call comes after its answer and begins with its last prompt", () => {
  const line = (timestamp: number, input: string): string =>
    JSON.stringify({ timestamp, input, output: "12345678", session_id: "s" });
  const read = parseAgentSession([line(5, "abcdefgh and more"), line(2, "abcdefgh")].join("\n"));
  expect(read.map((call) => [call.promptTokens().length, call.outputTokens])).toEqual([
    [2, 2],
    [5, 2],
  ]);
  const workload = agentWorkload(agentSessions(3, 1), { seed: 1, sessionsPerSecond: 1 });
  const [first] = all(workload);
  const answer = { finishedMs: 9000, tokens: [] };
  const [next] = workload.after(first!, answer);
  expect(next!.atMs).toBe(10_000);
  const prompt = first!.promptTokens();
  expect(commonPrefix(prompt, next!.promptTokens())).toBe(prompt.length);
  expect(workload.after(first!, answer)).toEqual([]);
});

test("a logged run keeps its times and tokens", () => {
  const run = (queued: number): string =>
    JSON.stringify({
      queued_ts: queued,
      scheduled_ts: queued + 0.5,
      first_token_ts: queued + 1,
      last_token_ts: queued + 3,
      output_toks: 21,
    });
  const asked = JSON.stringify({ input_tok_ids: [5, 6, 7] });
  const calls = parseVllmLog(`${run(10)}\n${run(10.25)}\n`, `${asked}\n${asked}\n`);
  expect(calls[1]).toEqual({
    queuedMs: 250,
    scheduledMs: 750,
    firstTokenMs: 1250,
    lastTokenMs: 3250,
    promptTokens: Int32Array.of(5, 6, 7),
    outputTokens: 21,
  });
  expect(all(vllmLogWorkload(calls)).map(({ atMs }) => atMs)).toEqual([0, 250]);
});

test("of a mixed workload the parts of an application come together, and the joining call after the last", () => {
  const workload = mixedWorkload(chatLengths(100, 1), { seed: 1, callsPerSecond: 4, calls: 64 });
  const arrivals = all(workload);
  expect(arrivals.every((arrival, index) => index === 0 || arrivals[index - 1]!.atMs <= arrival.atMs)).toBe(
    true,
  );
  const first = arrivals.findIndex((arrival) => arrival.kind === "map");
  const members = arrivals.slice(first, first + 16);
  expect(
    new Set(members.map((member) => `${member.kind} ${member.service.taskGroup} ${member.atMs}`)).size,
  ).toBe(1);
  const joins = members.map((member) => workload.after(member, { finishedMs: 5000, tokens: [] }));
  expect(joins.map((join) => join.length)).toEqual([...Array(15).fill(0), 1]);
  expect(joins[15]![0]).toMatchObject({ kind: "reduce", atMs: 5000 });
});
