/**
 * Faults and load changes in a fleet of four A6000s: each event compared with the same run without it.
 * Unrelated calls must not wait much longer: at the 99th percentile at most twice as long plus a second.
 */

import { chatService } from "../../scheduler/core.ts";
import { ours } from "../../scheduler/policies.ts";
import type { SimulationReport } from "../../simulation/report.ts";
import { type Fault, simulate } from "../../simulation/simulator.ts";
import type { Workload } from "../../simulation/workload.ts";
import { chatLengths, chatWorkload } from "../../simulation/workloads/chat.ts";
import { merged } from "../../simulation/workloads/merge.ts";
import { tools, toolWorkload } from "../../simulation/workloads/tools.ts";
import { type Bench, devices } from "./bench.ts";
import { row } from "./table.ts";

const DEVICES = 4;
const EVENT_MS = 30_000;
const CALLS = 1800;

interface Scenario {
  readonly name: string;
  readonly make: (seed: number) => Workload;
  /** Event, as calls of another kind or as faults. */
  readonly event?: (seed: number) => Workload;
  readonly faults?: readonly Fault[];
}

/** Normal load: half of the capacity of the four. */
const usual = (seed: number): Workload =>
  toolWorkload(tools(320, 1), { seed, callsPerSecond: 18, calls: CALLS, exponent: 1.1 });

/** Hot spot: a single tool, requested as often as all the others together, for half a minute. */
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

/** Burst: ten times as many calls, of another tenant, for five seconds. */
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

/** Claim: an event affects only the calls that it concerns. */
export function underEvents(bench: Bench): void {
  for (const { name, make, event, faults = [] } of scenarios) {
    const runs = bench.seeds.map((seed) => {
      const calm = run(make(seed), seed, []);
      const part = event === undefined ? [] : [{ workload: event(seed), startMs: EVENT_MS, kind: "event" }];
      const troubled = run(merged(name, [{ workload: make(seed) }, ...part]), seed, faults);
      bench.note(`${name}, seed ${seed}`);
      return {
        used: (100 * othersP99(troubled)) / (2 * othersP99(calm) + 1000),
        hits: (100 * troubled.hitRate) / calm.hitRate,
        lost: troubled.unanswered,
      };
    });
    const [used, hits, lost] = (["used", "hits", "lost"] as const).map((key) => runs.map((one) => one[key]));
    bench.row(
      row("events", `${name}: P99 wait of the others, of what is allowed`, used!, " %", { most: 100 }),
    );
    bench.row(row("events", `${name}: calls that were not answered`, lost!, "", { most: 0 }));
    if (faults.some((fault) => fault.kind === "dropNotices")) {
      bench.row(row("events", `${name}: hit rate, of the calm run's`, hits!, " %", { least: 98 }));
    }
  }
}

function engine(index: number): Fault["engine"] {
  return index as Fault["engine"];
}

function run(workload: Workload, seed: number, faults: readonly Fault[]): SimulationReport {
  return simulate({ workload, policy: ours(), devices: devices("a6000", DEVICES), seed, faults });
}

/** Waiting time of unrelated calls: 99th percentile in ms. */
function othersP99({ calls }: SimulationReport): number {
  const waits = calls
    .filter(({ kind }) => kind !== "event")
    .map((call) => (call.startedMs ?? call.finishedMs) - call.arrivedMs)
    .sort((a, b) => a - b);
  return waits[Math.ceil(0.99 * waits.length) - 1]!;
}
