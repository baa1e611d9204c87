/**
 * Compares orders of waiting sequences, and rules for the pages between turns, over drawn loads of agents and chats, in
 * virtual time.
 *
 *   npx bun benchmarks/sessions.ts [loads] [first seed]
 */

import { ours } from "../scheduler/policies.ts";
import type { Policy } from "../scheduler/policy.ts";
import {
  attainedService,
  firstCome,
  firstSession,
  highestRatio,
} from "../simulation/baselines/session-orders.ts";
import { tailLruCache } from "../simulation/baselines/tail-lru.ts";
import { drawLoad, type Outcome } from "./sessions/load.ts";

const [loads = 200, first = 1] = process.argv.slice(2).map(Number);
const SESSIONS = 24;
/**
 * Time for which Continuum (arXiv:2511.02230 §4) retains an agent's pages during a tool call, until it has
 * measured the tool.
 */
const TOOL_MS = 2000;

const { sessions: keeping, ...nothingKept } = ours();

/** Pairs of our policy and a rival, made anew for each load, because orders keep state about sessions. */
const pairs: Readonly<Record<string, () => readonly [own: Policy, rival: Policy]>> = {
  "first come": () => [nothingKept, { ...nothingKept, queue: firstCome() }],
  "first session": () => [nothingKept, { ...nothingKept, queue: firstSession() }],
  "attained service": () => [nothingKept, { ...nothingKept, queue: attainedService() }],
  "highest ratio": () => [nothingKept, { ...nothingKept, queue: highestRatio() }],
  "fixed times": () => [
    { ...nothingKept, sessions: keeping! },
    { ...nothingKept, sessions: { kind: "baseline", keepMs: (awaitsTool) => (awaitsTool ? TOOL_MS : 0) } },
  ],
  "tail-optimized LRU": () => [
    { ...nothingKept, sessions: keeping! },
    { ...nothingKept, cache: tailLruCache },
  ],
  "nothing kept": () => [{ ...nothingKept, sessions: keeping! }, nothingKept],
};

const figures = {
  sessionMs: "session mean",
  sessionP99Ms: "session p99",
  firstMs: "first token mean",
  firstP99Ms: "first token p99",
  waitMs: "longest wait",
} as const satisfies Partial<Record<keyof Outcome, string>>;
type Figure = keyof typeof figures;
const figureNames = Object.keys(figures) as readonly Figure[];

/** Ratios of our figures to the rival's, per load. */
const ratios = new Map<string, Readonly<Record<Figure, number>>[]>();
for (let seed = first; seed < first + loads; seed++) {
  const load = drawLoad(seed, SESSIONS);
  const outcomes = new Map<Policy, Outcome>();
  const run = (policy: Policy): Outcome => {
    const outcome = outcomes.get(policy) ?? load.run(policy);
    outcomes.set(policy, outcome);
    return outcome;
  };
  const texts = Object.entries(pairs).map(([name, pairOf]) => {
    const [own, rival] = pairOf().map(run) as [Outcome, Outcome];
    // Adds a millisecond, because calls may not wait at all.
    const entries = figureNames.map((figure) => [figure, (own[figure] + 1) / (rival[figure] + 1)]);
    const ratio = Object.fromEntries(entries) as Record<Figure, number>;
    ratios.set(name, [...(ratios.get(name) ?? []), ratio]);
    return `${name} ${figureNames.map((figure) => ratio[figure].toFixed(3)).join(" ")}`;
  });
  console.error(`${seed}: ${texts.join(", ")}; ${load.name}`);
}

const mean = (values: readonly number[]): number => values.reduce((sum, one) => sum + one, 0) / values.length;
console.log(`| Ours over | ${Object.values(figures).join(" | ")} | worst session mean | loads above 1.05 |`);
console.log(`|${"---|".repeat(figureNames.length + 3)}`);
for (const [name, all] of ratios) {
  const means = figureNames.map((figure) => mean(all.map((ratio) => ratio[figure])).toFixed(3));
  const sessions = all.map(({ sessionMs }) => sessionMs);
  const above = sessions.filter((ratio) => ratio > 1.05).length;
  console.log(`| ${name} | ${means.join(" | ")} | ${Math.max(...sessions).toFixed(3)} | ${above} |`);
}
