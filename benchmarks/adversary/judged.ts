/** By what a search judges policies, and how it writes that down. */

import type { Figures } from "./figures.ts";

/** More than so many times worse than the best rival is a loss. */
export const LOSS_RATIO = 1.1;

/** Figures that are judged, and the share of configurations in which ours may lose; null: told, not judged. */
export const judged: readonly {
  readonly figure: keyof Figures;
  readonly name: string;
  readonly most: number | null;
}[] = [
  { figure: "latencyMeanMs", name: "mean latency", most: 0.02 },
  { figure: "latencyP99Ms", name: "P99 latency", most: 0.05 },
  { figure: "ttftMeanMs", name: "mean time to first token", most: 0.1 },
  { figure: "tokensPerSecond", name: "throughput", most: null },
];

/** Of so many, the part that is so. */
export function shareOf<Item>(items: readonly Item[], is: (item: Item) => boolean): number {
  return items.filter(is).length / items.length;
}

/** For people. */
export function percent(share: number): string {
  return `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}

/** For people. */
export function times(ratio: number): string {
  return `${ratio.toFixed(2)}×`;
}

/** A table. */
export function markdown(head: readonly string[], lines: readonly (readonly string[])[]): string {
  return [head, head.map(() => "---"), ...lines].map((line) => `| ${line.join(" | ")} |`).join("\n");
}
