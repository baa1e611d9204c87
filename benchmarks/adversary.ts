/**
 * A search for loads under which ours is worse than a simpler policy: draws machines and loads, runs every policy on each in
 * virtual time, and lists where ours loses to the best rival of that configuration.
 *
 *   bun benchmarks/adversary.ts [--seed 1] [--configurations 100 | --minutes 10] [--settings 0] [--resume] [--threads 2]
 *                               [--write docs/papers]
 *   bun benchmarks/adversary.ts --repeat 1-42 [--draw 1001]
 *
 * The same seed draws the same configurations in the same order. --repeat prints one of them with every policy; --draw takes other
 * calls of the same load. Each trial goes to build/adversary-<seed>.jsonl as it ends; --resume keeps those that are there and runs
 * what is missing. The first --settings of them also run under other settings of ours (adversary/hindsight.ts). --write puts the
 * summary into adversary.md of that folder.
 */

import { appendFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { table } from "../server/cli/table.ts";
import { drawConfiguration, idOf, parseId } from "./adversary/configuration.ts";
import { figureNames, shownFigure } from "./adversary/figures.ts";
import { describe, summaryOf } from "./adversary/summary.ts";
import { own } from "./adversary/systems.ts";
import { runTrial, type Trial } from "./adversary/trial.ts";
import type { Task } from "./adversary/worker.ts";

const HEAD = `# Loads drawn at random

Written by \`bun benchmarks/adversary.ts --write docs/papers\`: machines and loads that nobody picked
([what from](../../benchmarks/adversary/configuration.ts)), each run under ours as it serves and under eleven rivals, in virtual time
on measured device models ([what is behind them](README.md)). Ours is compared with whichever rival is best in that one configuration and
figure. Each run has calls to fill its engines one and a half times and for ten seconds, 120 to 3,000 of them.
\`bun benchmarks/adversary.ts --repeat <id>\` runs one again.

**The result.** In mean latency ours is hardly ever behind. In P99 and in first tokens it is behind more often than is wanted, and so is every
rival: another one is best each time, and is bad elsewhere (second table). A server that knew the outcome and chose a policy for each
configuration would still lose.

**Why.** In first tokens nearly always a trade: ours computes prompts in what tiles beside decodes have free, so answers end sooner, and a first token
comes some steps later; rivals that compute whole prompts first begin sooner while streams stand still
([0020](../decisions/0020-steps-are-bounded-by-time.md)). In P99 nearly always short answers and more work than can be done: what is dear waits longest, a document that is not cached
yet and those that ask for it, or a long prompt behind short ones ([0019](../decisions/0019-waits-in-proportion-to-cost.md)). Several tenants cost something by design: the
one that asks for most waits longest, and no rival knows tenants ([0071](../decisions/0071-turns-of-tenants-are-not-longer-where-memory-is-short.md)). In the mean little is left; one document that all ask for at
once on eight engines was most of it until placements counted the wait for what is on its way ([0099](../decisions/0099-what-is-on-its-way-is-waited-for.md)). What was tried costs as much as it gains: [0063](../decisions/0063-long-waits-are-not-cut-at-the-cost-of-the-mean.md), [0092](../decisions/0092-settings-of-the-policy-are-trades.md).
`;

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: "1" },
    configurations: { type: "string" },
    minutes: { type: "string" },
    settings: { type: "string", default: "0" },
    resume: { type: "boolean", default: false },
    threads: { type: "string", default: "2" },
    repeat: { type: "string" },
    draw: { type: "string" },
    write: { type: "string" },
  },
});

if (values.repeat !== undefined) repeat(values.repeat, values.draw);
else await search();

/** One configuration with every policy; its calls are drawn by another seed if one is given. */
function repeat(id: string, draw?: string): void {
  const { seed, index } = parseId(id);
  const drawn = drawConfiguration(seed, index);
  const configuration = draw === undefined ? drawn : { ...drawn, seed: Number(draw) };
  const { ours, rivals } = runTrial(configuration);
  const rows = [[own.name, ours] as const, ...Object.entries(rivals)].map(([name, figures]) => [
    name,
    ...figureNames.map((figure) => shownFigure(figure, figures[figure])),
  ]);
  console.log(`${describe(configuration)}\n\n${table(["", ...figureNames], rows)}`);
}

async function search(): Promise<void> {
  const seed = Number(values.seed);
  const minutes = values.minutes === undefined ? Number.POSITIVE_INFINITY : Number(values.minutes);
  const most = Number(
    values.configurations ?? (values.minutes === undefined ? 100 : Number.MAX_SAFE_INTEGER),
  );
  const startMs = performance.now();
  const path = `build/adversary-${seed}.jsonl`;
  mkdirSync("build", { recursive: true });
  if (!values.resume) rmSync(path, { force: true });
  const trials = new Map(
    (existsSync(path) ? trialsOf(readFileSync(path, "utf8")) : []).map((trial) => [
      trial.configuration.index,
      trial,
    ]),
  );
  const settingsMost = Number(values.settings);
  const isDone = (index: number): boolean =>
    trials.has(index) && (index >= settingsMost || trials.get(index)!.settings !== undefined);
  let drawn = 0;
  const thread = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const worker = new Worker(new URL("./adversary/worker.ts", import.meta.url));
      const next = (): void => {
        while (isDone(drawn)) drawn += 1;
        if (drawn < most && performance.now() - startMs < 60_000 * minutes) {
          const configuration = drawConfiguration(seed, drawn);
          const hasSettings = drawn < settingsMost;
          worker.postMessage({ configuration, trial: trials.get(drawn), hasSettings } satisfies Task);
          drawn += 1;
        } else {
          worker.terminate();
          resolve();
        }
      };
      worker.onmessage = ({ data }: MessageEvent<Trial>) => {
        trials.set(data.configuration.index, data);
        appendFileSync(path, `${JSON.stringify(data)}\n`);
        const seconds = (performance.now() - startMs) / 1000;
        console.error(`${seconds.toFixed(0).padStart(5)} s  ${trials.size}: ${idOf(data.configuration)}`);
        next();
      };
      worker.onerror = (event) => reject(new Error(event.message));
      next();
    });
  await Promise.all(Array.from({ length: Number(values.threads) }, thread));
  const sorted = [...trials.values()].sort((a, b) => a.configuration.index - b.configuration.index);
  const summary = summaryOf(sorted, seed);
  console.log(summary);
  if (values.write !== undefined) writeFileSync(join(values.write, "adversary.md"), `${HEAD}\n${summary}\n`);
}

/** The trials of an earlier run; one whose line was cut off is not among them. */
function trialsOf(text: string): Trial[] {
  return text
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line));
}
