/**
 * Compares the priced number of drafts with fixed ones over drawn loads, in virtual time.
 *
 *   npx bun benchmarks/speculation.ts [loads] [first seed]
 */

import { drawLoad, type Outcome, type Rule, rules } from "./speculation/load.ts";

const [loads = 200, first = 1] = process.argv.slice(2).map(Number);
const fixed = rules.filter((rule) => rule !== "priced" && rule !== 0);
const priced: Outcome[] = [];
const others = new Map<Rule, Outcome[]>();
const worst: { readonly ratio: number; readonly text: string }[] = [];

for (let seed = first; seed < first + loads; seed++) {
  const load = drawLoad(seed);
  const outcomes = new Map(rules.map((rule) => [rule, load.run(rule)]));
  const own = outcomes.get("priced")!;
  priced.push(own);
  for (const rule of rules) others.set(rule, [...(others.get(rule) ?? []), outcomes.get(rule)!]);
  const best = fixed.reduce((a, b) => (outcomes.get(b)!.latencyMs < outcomes.get(a)!.latencyMs ? b : a));
  const ratio = own.latencyMs / outcomes.get(best)!.latencyMs;
  worst.push({ ratio, text: `${seed}: ${ratio.toFixed(3)} of ${best} drafts; ${load.name}` });
}

const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;
for (const rule of rules.filter((one) => one !== "priced")) {
  const outcomes = others.get(rule)!;
  const latency = mean(priced.map(({ latencyMs }, i) => latencyMs / outcomes[i]!.latencyMs));
  const gaps = priced.map(({ gapMs }, i) => gapMs / outcomes[i]!.gapMs);
  const most = Math.max(...priced.map(({ latencyMs }, i) => latencyMs / outcomes[i]!.latencyMs));
  console.log(
    `priced over ${rule} drafts: latency ${latency.toFixed(3)} on average, ${most.toFixed(3)} at worst; p99 gap ${mean(gaps).toFixed(3)}, ${Math.max(...gaps).toFixed(3)} at worst`,
  );
}
worst.sort((a, b) => b.ratio - a.ratio);
console.log(
  `worse than the best fixed number by more than 2 %: ${worst.filter(({ ratio }) => ratio > 1.02).length}`,
);
for (const { text } of worst.slice(0, 12)) console.log(text);
