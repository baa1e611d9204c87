/** Chats beside a job on simulated A100s: their latency over that without the job, and the job's rate. */

import { ours } from "../../scheduler/policies.ts";
import type { SimulationReport } from "../../simulation/report.ts";
import { simulate } from "../../simulation/simulator.ts";
import type { Workload } from "../../simulation/workload.ts";
import { chatLengths, chatWorkload } from "../../simulation/workloads/chat.ts";
import { merged } from "../../simulation/workloads/merge.ts";
import { case1 } from "./batchllm.ts";
import { asServed, known, PAGES } from "./batchllm-systems.ts";
import { allAnswered, type Bench, devices } from "./bench.ts";
import { row } from "./table.ts";

/** Load of chats beside a job. */
interface Load {
  readonly name: string;
  readonly tbtMs: number | null;
  readonly engines: number;
  readonly callsPerSecond: number;
  readonly calls: number;
  /** Prompts of the job, which lasts longer than the chats. */
  readonly prompts: number;
}

/**
 * Loads: 30 % of the chat rate that four A100s serve within the target, and occasional single chats. Chat
 * prompts have 10 to 7,000 tokens, so the median over a few dozen chats is noisy.
 */
const loads: readonly Load[] = [
  { name: "no target", tbtMs: null, engines: 4, callsPerSecond: 3, calls: 600, prompts: 6000 },
  { name: "target 100 ms", tbtMs: 100, engines: 4, callsPerSecond: 3, calls: 600, prompts: 14_000 },
  { name: "one in ten seconds", tbtMs: null, engines: 1, callsPerSecond: 0.1, calls: 240, prompts: 26_000 },
];

interface Run {
  readonly calm: SimulationReport;
  readonly beside: SimulationReport;
  /** Rate of the job in percent of that alone. */
  readonly share: number;
}

function run(bench: Bench, load: Load, seed: number): Run {
  const { tbtMs, engines, callsPerSecond } = load;
  const calls = load.calls / (bench.isQuick ? 8 : 1);
  const prompts = load.prompts / (bench.isQuick ? 2 : 1);
  const job = known({ ...case1, prompts }, seed);
  const chats = (): Workload => chatWorkload(chatLengths(4096, 1), { seed, callsPerSecond, calls });
  const models = devices("a100", engines, { spec: { pages: PAGES } });
  const setup = { policy: ours(tbtMs), devices: models, seed, watched: "chat" };
  const calm = allAnswered(simulate({ ...setup, workload: chats() }));
  const alone = allAnswered(simulate({ ...setup, workload: asServed(job, engines) }));
  let left = calls;
  const counted = chats();
  const counting: Workload = {
    ...counted,
    after: (arrival, answer) => {
      left -= 1;
      return counted.after(arrival, answer);
    },
  };
  const both = merged("chats and a job", [{ workload: counting }, { workload: asServed(job, engines) }]);
  const beside = simulate({ ...setup, workload: both, until: () => left === 0 });
  const done = beside.calls.filter(({ kind, finish }) => kind === "job" && finish !== "unfinished").length;
  if (done === prompts) throw new Error("the job ended before the chats did");
  const pace = ({ durationMs }: SimulationReport, count: number): number => count / durationMs;
  return { calm, beside, share: (100 * pace(beside, done)) / pace(alone, prompts) };
}

/** Claim: chats beside a job keep their latency, and the job gets the rest. */
export function besideChats(bench: Bench): void {
  for (const load of loads) {
    const { name, tbtMs } = load;
    const runs = bench.seeds.map((seed) => {
      const one = run(bench, load, seed);
      bench.note(`${name}, seed ${seed}: job at ${one.share.toFixed(1)} % of its own pace`);
      return one;
    });
    const claim = `a job beside chats, ${name}`;
    const most = tbtMs === null ? { most: 1.1 } : null;
    for (const figure of ["ttft", "tbt"] as const) {
      for (const share of ["p50", "p90", "p99"] as const) {
        const ratios = runs.map(({ calm, beside }) => beside[figure][share] / calm[figure][share]);
        bench.row(row(claim, `chats' ${figure.toUpperCase()} ${share}, of that without`, ratios, "×", most));
      }
    }
    if (tbtMs !== null) {
      const p99 = runs.map(({ beside }) => beside.tbt.p99);
      bench.row(row(claim, "chats' TBT p99", p99, " ms", { most: tbtMs }));
    }
    const shares = runs.map(({ share }) => share);
    bench.row(
      row(claim, "the job's pace, of what it has alone", shares, " %", tbtMs === null ? null : { least: 70 }),
    );
  }
}
