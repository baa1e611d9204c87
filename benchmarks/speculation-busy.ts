/**
 * Drafts on busy servers, simulated: 8 and 32 streams whose prompts arrive beside each other, with a target of 50 ms
 * between tokens and without; average latency and 99th percentile of gaps over those without drafts.
 *
 *   npx bun benchmarks/speculation-busy.ts [loads per cell]
 */

import { curveNames, gpu, loadOf, processor } from "./speculation/load.ts";

const [loads = 4] = process.argv.slice(2).map(Number);
const machines = [processor(20, 0.02), processor(20, 0.08), gpu("a100")];
const mean = (values: readonly number[]): string =>
  (values.reduce((a, b) => a + b, 0) / values.length).toFixed(3);

console.log("machine, streams, target: latency, p99 gap by kind of answer");
for (const machine of machines) {
  for (const running of [8, 32]) {
    for (const tbtMs of [null, 50]) {
      const cells = curveNames.map((kind) => {
        const ratios = Array.from({ length: loads }, (_, index) => {
          const drawn = { seed: index + 1, machine, kinds: [kind], running, tbtMs };
          const load = loadOf({ ...drawn, promptTokens: 400, outputTokens: 120, noise: "mild" });
          const [off, on] = [load.run(0), load.run("priced")];
          return [on.latencyMs / off.latencyMs, on.gapMs / off.gapMs] as const;
        });
        return `${kind} ${mean(ratios.map(([latency]) => latency))} ${mean(ratios.map(([, gap]) => gap))}`;
      });
      console.log(`${machine.device}, ${running}, ${tbtMs ?? "none"}: ${cells.join("; ")}`);
    }
  }
}
