import { describe, expect, test } from "bun:test";
import type { RunningRequest } from "../../explain/running-requests.ts";
import { type LiveView, nextView } from "../../http/live-view.ts";
import type { EngineNow, FactsNow, LiveNow, StepBar } from "../../http/state-events.ts";
import { frame, type TopState } from "./frame.ts";
import { coloured, lineOf, plain } from "./paint.ts";

const facts: FactsNow = {
  version: "1.2.3",
  model: "demo",
  contextMax: 256,
  status: "ready",
  refusal: null,
  isAdmin: true,
};
const load: EngineNow["load"] = {
  waiting: 2,
  running: 5,
  paused: 1,
  pagesTotal: 1000,
  pagesFree: 250,
  pagesCached: 250,
  stepsTotal: 100,
  stepTokens: 9,
  deviceMs: 7,
  stepMs: 8,
  promptTokensTotal: 4000,
  generatedTokensTotal: 700,
  prefixQueriedTotal: 4000,
  prefixHitTotal: 3000,
  preemptionsTotal: 1,
  evictedPagesTotal: 3,
  tierStoredPagesTotal: 1200,
  tierLoadedPagesTotal: 30,
  tierHostPagesTotal: 0,
  draftTokensTotal: 0,
  acceptedTokensTotal: 0,
};
const steps: readonly StepBar[] = [
  [92_000, 10, 0, 64, 0, 0, 0, 0, 0],
  [99_600, 40, 5, 0, 0, 0, 0, 0, 1],
  [100_000, 8, 5, 0, 0, 0, 2, 0, 0],
];
const request: RunningRequest = {
  id: "req_1",
  model: "demo",
  route: "/v1/chat/completions",
  totalMs: 1234.5,
  firstMs: null,
  promptTokens: 80,
  generated: 0,
  cause: "memory",
};

function now(changes: Partial<LiveNow> = {}, engines = 1): LiveNow {
  return {
    timeMs: 100_000,
    targetMs: 20,
    engines: Array.from({ length: engines }, () => ({ name: "cpu", load, steps })),
    queue: [{ objective: "latency", tenant: "3f2a9c0011", waiting: 2, promptTokens: 1500 }],
    firstToken: { count: 9, p50Ms: 12, p90Ms: 80, p99Ms: 120 },
    betweenTokens: { count: 99, p50Ms: 8, p90Ms: 12, p99Ms: 31 },
    placements: [],
    jobs: { active: 1, linesRunning: 4 },
    computed: { requests: 1, jobs: 2 },
    ...changes,
  };
}

/** The view half a second after one with half the tokens. */
function viewOf(changes: Partial<LiveNow> = {}, engines = 1): LiveView {
  const last = now({}, engines);
  const earlier = { ...load, generatedTokensTotal: 350, promptTokensTotal: 2000 };
  const before = last.engines.map((engine) => ({ ...engine, load: earlier, steps: [] }));
  return nextView(nextView(null, { ...last, timeMs: 99_500, engines: before }), now(changes, engines));
}

const state = (changes: Partial<TopState> = {}): TopState => {
  return { facts, view: viewOf(), requests: [request], lost: null, ...changes };
};
const small = { columns: 80, rows: 24 };

test("a picture shows rates, waits, steps, memory, the queue and requests with what they wait for", () => {
  expect(frame(state(), small, plain)).toEqual([
    "Bunting 1.2.3  demo, ready   q quits",
    "tokens/s 700, of prompts 4.0k   running 5   waiting 2   paused 1",
    "first token     p50 12      p90 80      p99 120   ms",
    "between tokens  p50 8.0     p90 12      p99 31    ms   target 20 ms, 1 late",
    "prompt tokens cached 75 %   jobs 1, lines 4",
    "",
    "steps of the last 30 s, up to 23 ms;  ! late  p preemption  e eviction",
    "0 cpu  5 running, 2 waiting, 700 tokens/s, last step 8.0 ms",
    `${" ".repeat(58)}▃${" ".repeat(19)}█▃`,
    `${" ".repeat(78)}!e`,
    "memory ████████▒▒▒▒···· 50 % used, 25 % cached of 1.0k pages; disk 1.2k, 30 read",
    "",
    "queue       key  waiting  prompt tokens",
    "chats  3f2a9c00        2           1.5k",
    "",
    "  ms  first  tokens  now     request",
    "1235      –       0  memory  req_1    KV pages to become free",
  ]);
});

test("a step over its target, and a quantile over it, stand out", () => {
  const lines = frame(state(), small, coloured);
  expect(lines[3]).toContain("\x1b[1m12    \x1b[0m\x1b[2m  p99 \x1b[0m\x1b[31m31    \x1b[0m");
  expect(lines[8]).toContain(`\x1b[33m▃${" ".repeat(19)}\x1b[0m`);
  expect(lines[8]).toEndWith("\x1b[31m█\x1b[0m\x1b[32m▃\x1b[0m");
});

describe("any number of engines", () => {
  test.each([1, 2, 3, 8, 64])("%d fit 80 by 24, with the queue and a request below them", (engines) => {
    const requests = Array.from({ length: 40 }, () => request);
    const lines = frame(state({ view: viewOf({}, engines), requests }), small, plain);
    expect(lines.length).toBeLessThanOrEqual(24);
    for (const line of lines) expect([...line].length).toBeLessThanOrEqual(80);
    expect(lines.join("\n")).toContain("req_1");
    expect(lines.join("\n")).toContain("3f2a9c00");
    if (engines === 64) expect(lines.join("\n")).toContain("and 55 more engines");
  });

  test("without an end of rows all are there, and no key is named", () => {
    const endless = { columns: 100, rows: Number.POSITIVE_INFINITY };
    const lines = frame(state({ view: viewOf({}, 64) }), endless, plain);
    expect(lines.filter((line) => line.includes(" cpu "))).toHaveLength(64);
    expect(lines[0]).toBe("Bunting 1.2.3  demo, ready, 64 engines");
  });
});

test("a server that does nothing, and one that takes no work, say so", () => {
  const idle = viewOf({ queue: [], firstToken: null, betweenTokens: null, targetMs: null, jobs: null });
  const lines = frame(state({ view: idle, requests: [] }), small, plain);
  expect(lines).toContain("first token     none in the last ten seconds");
  expect(lines).toContain("Nobody waits.");
  expect(lines).toContain("No request runs.");
  const loading: FactsNow = { ...facts, status: "loading", refusal: "the model is being loaded" };
  expect(frame(state({ facts: loading, view: null }), small, plain)).toEqual([
    "Bunting 1.2.3  demo, loading   q quits",
    "the model is being loaded",
    "Waiting for the server …",
  ]);
});

test("a lost connection is told above the last picture, with its begin, the next attempt and the reason", () => {
  const at = (seconds: number): number => new Date(2026, 6, 30, 14, 5, seconds).getTime();
  const lost = { sinceMs: at(9), nextMs: at(13), reason: "No server answers at http://one." };
  const before = frame(state(), small, plain);
  const lines = frame(state({ lost }), small, plain);
  expect(lines.slice(1, 3)).toEqual([
    "No connection since 2026-07-30 14:05:09; next attempt at 14:05:13.",
    "No server answers at http://one.",
  ]);
  expect([lines[0]!, ...lines.slice(3)]).toEqual([...before]);
});

test("what a server tells cannot control the terminal", () => {
  const model = "x\x1b[2Jy";
  expect(frame(state({ facts: { ...facts, model }, view: null }), small, plain)[0]).toContain("x?[2Jy");
  expect(lineOf(["ab", ["strong", "cdef"]], 4, plain)).toBe("abcd");
});
