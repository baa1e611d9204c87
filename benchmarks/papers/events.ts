/**
 * What goes wrong in a fleet, on four A6000: each event beside the same run without it. Calls that have nothing to do with
 * the event must not wait much longer for it: at most twice as long at the 99th percentile, and a second. As a wait ends
 * with admission, the time to the first token stands beside it.
 */

import { chatService } from "../../scheduler/core.ts";
import { decodeStepMs, promptMs } from "../../scheduler/cost/cost-model.ts";
import { ours } from "../../scheduler/policies.ts";
import type { Fault } from "../../simulation/faults.ts";
import type { RequestRecord, SimulationReport } from "../../simulation/report.ts";
import { simulate } from "../../simulation/simulator.ts";
import type { Workload } from "../../simulation/workload.ts";
import { chatLengths, chatWorkload } from "../../simulation/workloads/chat.ts";
import { merged } from "../../simulation/workloads/merge.ts";
import { tools, toolWorkload } from "../../simulation/workloads/tools.ts";
import { type Bench, devices, seconds } from "./bench.ts";
import { row } from "./table.ts";

const DEVICES = 4;
const EVENT_MS = 30_000;
const CALLS = 1800;
/** How many answers share a step, for what a token of an answer costs. */
const DECODES = 16;

interface Scenario {
  readonly name: string;
  readonly make: (seed: number) => Workload;
  /** The event, as calls of another kind or as faults. */
  readonly event?: (seed: number) => Workload;
  readonly faults?: readonly Fault[];
}

/** Half of what the four can do. */
const usual = (seed: number): Workload =>
  toolWorkload(tools(320, 1), { seed, callsPerSecond: 18, calls: CALLS, exponent: 1.1 });

/** One tool alone, asked for as often as all the others together, for half a minute. */
const hot = (seed: number): Workload =>
  toolWorkload(tools(1, 2), { seed: seed + 100, callsPerSecond: 18, calls: 540, exponent: 1.1 });

const CHATS_PER_SECOND = 1.5;
const tenant = (name: string) => ({ ...chatService, tenant: name });
const chats = (seed: number): Workload =>
  chatWorkload(chatLengths(4096, 1), {
    seed,
    callsPerSecond: CHATS_PER_SECOND,
    calls: 180,
    service: tenant("usual"),
  });

/** Ten times as many calls of another tenant for five seconds. */
const burst = (seed: number): Workload =>
  chatWorkload(chatLengths(4096, 1), {
    seed: seed + 100,
    callsPerSecond: 10 * CHATS_PER_SECOND,
    calls: 5 * 10 * CHATS_PER_SECOND,
    service: tenant("burst"),
  });

const scenarios: readonly Scenario[] = [
  { name: "hot prefix", make: usual, event: hot },
  { name: "10× burst for 5 s", make: chats, event: burst },
  {
    name: "one device 3× slower",
    make: usual,
    faults: [{ atMs: EVENT_MS, engine: engine(1), kind: "slow", factor: 3 }],
  },
  {
    name: "device lost, back after 5 s",
    make: usual,
    faults: [{ atMs: EVENT_MS, engine: engine(1), kind: "lost", backAfterMs: 5000 }],
  },
  {
    name: "notices of 50 reports lost",
    make: usual,
    faults: [{ atMs: EVENT_MS, engine: engine(1), kind: "dropNotices", count: 50 }],
  },
];

/** Claim: an event is felt by the sequences that it concerns only. */
export function underEvents(bench: Bench): void {
  const lines: string[][] = [];
  for (const { name, make, event, faults = [] } of scenarios) {
    const shares = bench.seeds.map((seed) => {
      const calm = run(bench, make(seed), seed, []);
      const part = event === undefined ? [] : [{ workload: event(seed), startMs: EVENT_MS, kind: "event" }];
      const troubled = run(bench, merged(name, [{ workload: make(seed) }, ...part]), seed, faults);
      return {
        before: othersP99(calm, (call) => call.startedMs),
        after: othersP99(troubled, (call) => call.startedMs),
        firstBefore: othersP99(calm, (call) => call.firstMs),
        firstAfter: othersP99(troubled, (call) => call.firstMs),
        hits: (100 * troubled.hitRate) / calm.hitRate,
        lost: troubled.unanswered,
      };
    });
    const of = (what: string): string => `${name}: ${what}`;
    const worst = shares.reduce((a, b) =>
      b.after / (2 * b.before + 1000) > a.after / (2 * a.before + 1000) ? b : a,
    );
    const used = shares.map(({ before, after }) => (100 * after) / (2 * before + 1000));
    bench.row(row("events", of("P99 wait of the others, of what is allowed"), used, " %", { most: 100 }));
    const lost = shares.map((share) => share.lost);
    bench.row(row("events", of("calls that were not answered"), lost, "", { most: 0 }));
    if (faults.some((fault) => fault.kind === "dropNotices")) {
      const hits = shares.map((share) => share.hits);
      bench.row(row("events", of("hit rate, of the calm run's"), hits, " %", { least: 98 }));
    }
    const { before, after, firstBefore, firstAfter } = worst;
    lines.push([name, ...[before, after, firstBefore, firstAfter].map(seconds)]);
  }
  const { profile } = devices("a6000", 1)[0]!;
  const work = bench.seeds.map((seed) => {
    const report = run(bench, usual(seed), seed, []);
    const byEngine = Array.from({ length: DEVICES }, () => 0);
    for (const call of report.calls.slice(0, 1000)) {
      const { engine, promptTokens, cachedTokens, outputTokens } = call;
      byEngine[engine!]! += promptMs(profile, promptTokens - cachedTokens, cachedTokens);
      byEngine[engine!]! += (outputTokens * decodeStepMs(profile, DECODES, promptTokens)) / DECODES;
    }
    return (Math.max(...byEngine) * DEVICES) / byEngine.reduce((sum, ms) => sum + ms, 0);
  });
  bench.row(
    row("events", "cold start: most over mean work of a device, first 1000 calls", work, "×", { most: 1.2 }),
  );
  const head = ["Event", "wait without", "with", "first token without", "with"];
  bench.table("P99 of the others, in the seed with the longest wait", head, lines);
}

function engine(index: number): Fault["engine"] {
  return index as Fault["engine"];
}

function run({ noise }: Bench, workload: Workload, seed: number, faults: readonly Fault[]): SimulationReport {
  return simulate({ workload, policy: ours(), devices: devices("a6000", DEVICES), noise, seed, faults });
}

/** Of the calls that are not the event itself: from arrival on, 99th percentile, ms. */
function othersP99(report: SimulationReport, untilMs: (call: RequestRecord) => number | null): number {
  const waits = report.calls
    .filter((call: RequestRecord) => call.kind !== "event")
    .map((call) => (untilMs(call) ?? call.finishedMs) - call.arrivedMs)
    .sort((a, b) => a - b);
  return waits[Math.ceil(0.99 * waits.length) - 1]!;
}
