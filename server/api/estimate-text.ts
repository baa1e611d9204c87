/** Notes to a client that waits for its first token. */
import type { Estimate } from "../../scheduler/explain/outlook.ts";

/** Value of the header `x-bunting-eta`. */
export function etaHeader({ position, first }: Estimate): string {
  return `position=${position}; first_token_s=${seconds(first.expectedMs)}; low=${seconds(first.lowMs)}; high=${seconds(first.highMs)}`;
}

/** Comment for the stream of a client that waits. */
export function etaComment({ position, first }: Estimate): string {
  return `: position ${position}, first token in ${seconds(first.expectedMs)} s (${seconds(first.lowMs)} to ${seconds(first.highMs)})\n\n`;
}

function seconds(ms: number): string {
  return (ms / 1000).toFixed(1);
}
