/**
 * Compares orders of waiting sequences over drawn loads of agents and chats, in virtual time.
 *
 *   npx bun benchmarks/sessions.ts [loads] [first seed]
 */

import { ours } from "../scheduler/policies.ts";
import type { Policy } from "../scheduler/policy.ts";
import { withChanges } from "../simulation/baselines/policies.ts";
import { attainedService, firstCome, firstSession } from "../simulation/baselines/session-orders.ts";
import { drawLoad, type Outcome } from "./sessions/load.ts";

const [loads = 200, first = 1] = process.argv.slice(2).map(Number);
const SESSIONS = 24;

/** A policy of each kind, new for each load: orders keep what they know of sessions. */
const rivals: Readonly<Record<string, () => Policy>> = {
  "first come": () => withChanges(ours(), "first come", { queue: firstCome() }),
  "first session": () => withChanges(ours(), "first session", { queue: firstSession() }),
  "attained service": () => withChanges(ours(), "attained service", { queue: attainedService() }),
};

const figures = {
  sessionMs: "session mean",
  sessionP99Ms: "session p99",
  firstMs: "first token mean",
  firstP99Ms: "first token p99",
  waitMs: "longest wait",
} as const satisfies Partial<Record<keyof Outcome, string>>;
const figureNames = Object.keys(figures) as readonly (keyof typeof figures)[];

/** Ratios of our outcomes to a rival's, by load. */
const ratios = new Map<string, Record<keyof typeof figures, number>[]>();
for (let seed = first; seed < first + loads; seed++) {
  const load = drawLoad(seed, SESSIONS);
  const own = load.run(ours());
  const lines = Object.entries(rivals).map(([name, policyOf]) => {
    const other = load.run(policyOf());
    const ratio = Object.fromEntries(
      figureNames.map((figure) => [figure, (own[figure] + 1) / (other[figure] + 1)]),
    ) as Record<keyof typeof figures, number>;
    ratios.set(name, [...(ratios.get(name) ?? []), ratio]);
    return `${name} ${figureNames.map((figure) => ratio[figure].toFixed(3)).join(" ")}`;
  });
  console.error(`${seed}: ${lines.join(", ")}; ${load.name}`);
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
