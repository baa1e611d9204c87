/**
 * First tokens with and without a tier on disk, in the host's memory, or in both, in virtual time: Mooncake's conversations and agents on the
 * measured A100, whose memory holds a tenth of the pages that the calls write. The bound is a device whose
 * memory holds them all.
 *
 *   bun benchmarks/disk-tier.ts [--only agents] [--rate 0.35] [--calls 1000] [--share 0.1] [--device a6000] [--json]
 *
 * `--gigabytes` is the disk's speed per second, `--copies` that of the copies off the device. `--pcie` is the speed of
 * copies to and from the host's memory, each direction for itself, and `--host` the share of the pages that it holds.
 */

import { parseArgs } from "node:util";
import { hashPrompt } from "../scheduler/cache/page-hash.ts";
import { sharingOf } from "../scheduler/core.ts";
import { openProfile, type ProfileName } from "../scheduler/cost/profiles.ts";
import { ours } from "../scheduler/policies.ts";
import { openWorkload, tracesFolder } from "../server/cli/simulate/traces.ts";
import type { SimulationReport } from "../simulation/report.ts";
import type { HostSetup } from "../simulation/simulated-places.ts";
import type { TierSetup } from "../simulation/simulated-tier.ts";
import { simulate } from "../simulation/simulator.ts";
import type { Arrival, Workload } from "../simulation/workload.ts";

const { values } = parseArgs({
  options: {
    only: { type: "string" },
    rate: { type: "string" },
    calls: { type: "string" },
    gigabytes: { type: "string", default: "2" },
    share: { type: "string", default: "0.1" },
    device: { type: "string", default: "a100" },
    copies: { type: "string", default: "200" },
    pcie: { type: "string", default: "25" },
    host: { type: "string", default: "0.3" },
    json: { type: "boolean" },
  },
});

/** Calls, or sessions of agents, and their rate per second. */
const loads = {
  conversation: { calls: 1000, rate: 0.35 },
  agents: { calls: 20, rate: 0.05 },
};

const PAGE_TOKENS = 16;
/** Keys and values of 8 heads of 128 numbers in 32 layers, two bytes each. */
const PAGE_BYTES = PAGE_TOKENS * 32 * 2 * 8 * 128 * 2;
const SEED = 1;

const disk: TierSetup = {
  pageBytes: PAGE_BYTES,
  pageTokens: PAGE_TOKENS,
  bytesPerMs: Number(values.gigabytes) * 1e6,
  latencyMs: 0.2,
  copiedBytesPerMs: Number(values.copies) * 1e6,
  waitingPagesMax: 256,
  segmentPages: 4096,
  segmentsMax: Number.POSITIVE_INFINITY,
  lostShare: 0,
  seed: SEED,
};

/** The engine's thread only begins copies; they run beside its steps. */
const hostOf = (places: number): HostSetup => ({
  pageBytes: PAGE_BYTES,
  pageTokens: PAGE_TOKENS,
  places,
  bytesPerMs: Number(values.pcie) * 1e6,
  latencyMs: 0.2,
  beginMs: 0.005,
  sendingMax: 64,
});

/** Workload that records the hashes of all pages of its prompts. */
function noting(workload: Workload, pages: Set<number>): Workload {
  const noted = (arrival: Arrival | null): Arrival | null => {
    if (arrival === null) return null;
    const tokens = arrival.promptTokens();
    const sharing = sharingOf({ adapter: 0, cacheSalt: arrival.cacheSalt }, PAGE_TOKENS);
    for (const hash of hashPrompt(tokens, Math.floor(tokens.length / PAGE_TOKENS), PAGE_TOKENS, sharing))
      pages.add(hash);
    return arrival;
  };
  return {
    name: workload.name,
    vocabSize: workload.vocabSize,
    next: () => noted(workload.next()),
    after: (arrival, answer) => workload.after(arrival, answer).map((next) => noted(next)!),
  };
}

function run(
  workload: Workload,
  pages: number,
  tier: TierSetup | null,
  host: HostSetup | null = null,
): SimulationReport {
  const { profile, spec } = openProfile(values.device as ProfileName, {
    spec: { pages, contextMax: 131_072 },
  });
  const devices = [{ profile, spec, ...(tier === null ? {} : { tier }), ...(host === null ? {} : { host }) }];
  const report = simulate({ workload, policy: ours(), devices, seed: SEED });
  const answered = report.calls.filter(({ firstMs }) => firstMs !== null).length;
  if (answered < 0.9 * report.calls.length)
    throw new Error(`${answered} of ${report.calls.length} calls have a first token.`);
  return report;
}

interface Row {
  readonly workload: string;
  readonly variant: string;
  readonly pages: number;
  readonly meanMs: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly gapP99Ms: number;
  readonly hitRate: number;
  readonly busy: number;
  readonly storedGb: number;
  readonly loadedGb: number;
}

function rowOf(workload: string, variant: string, pages: number, report: SimulationReport): Row {
  const firsts = report.calls.flatMap(({ firstMs, arrivedMs }) =>
    firstMs === null ? [] : firstMs - arrivedMs,
  );
  const { busyMs, tierStoredPages, tierLoadedPages } = report.engines[0]!;
  return {
    workload,
    variant,
    pages,
    meanMs: firsts.reduce((sum, ms) => sum + ms, 0) / firsts.length,
    p50Ms: report.ttft.p50,
    p99Ms: report.ttft.p99,
    gapP99Ms: report.tbt.p99,
    hitRate: report.hitRate,
    busy: busyMs / report.durationMs,
    storedGb: (tierStoredPages * PAGE_BYTES) / 1e9,
    loadedGb: (tierLoadedPages * PAGE_BYTES) / 1e9,
  };
}

const rows: Row[] = [];
const folder = tracesFolder(null);
for (const [name, { calls, rate }] of Object.entries(loads)) {
  if ((values.only ?? name) !== name) continue;
  const { make, source } = openWorkload(name, folder, {
    seed: SEED,
    calls: Number(values.calls ?? calls),
    callsPerSecond: Number(values.rate ?? rate),
  });
  console.error(`${name}: ${source}`);
  const written = new Set<number>();
  const whole = run(noting(make(), written), 8_000_000, null);
  const pages = Math.ceil(Number(values.share) * written.size);
  rows.push(rowOf(name, "without", pages, run(make(), pages, null)));
  rows.push(rowOf(name, "disk", pages, run(make(), pages, disk)));
  const host = hostOf(Math.ceil(Number(values.host) * written.size));
  rows.push(rowOf(name, "host", pages, run(make(), pages, null, host)));
  rows.push(rowOf(name, "host, disk", pages, run(make(), pages, disk, host)));
  rows.push(rowOf(name, "bound", written.size, whole));
}

if (values.json) console.log(JSON.stringify(rows));
else {
  console.log(
    "| Workload | | Pages | TTFT mean / p50 / p99 ms | gap p99 ms | cached | busy | written / read GB |",
  );
  console.log(`|${"---|".repeat(8)}`);
  for (const row of rows) {
    const times = [row.meanMs, row.p50Ms, row.p99Ms].map((ms) => ms.toFixed(0)).join(" / ");
    const percents = [row.hitRate, row.busy].map((share) => `${(100 * share).toFixed(0)} %`).join(" | ");
    const moved = `${row.storedGb.toFixed(0)} / ${row.loadedGb.toFixed(0)}`;
    console.log(
      `| ${row.workload} | ${row.variant} | ${row.pages} | ${times} | ${row.gapP99Ms.toFixed(0)} | ${percents} | ${moved} |`,
    );
  }
}
