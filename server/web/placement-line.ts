import { type Placement, totalMs } from "../../scheduler/fleet/placement.ts";

/**
 * Placement as a line for a narrow column: "exploit, 3,072 tokens cached: 120 ms, else 340 ms". The second
 * time is that of the cheapest other engine. Times are absent if the fleet compared none.
 */
export function placementLine({ engine, reason, costs }: Placement): string {
  const here = costs.find((cost) => cost.engine === engine);
  if (here === undefined) return reason;
  const cached = here.cachedTokens > 0 ? `, ${whole(here.cachedTokens)} tokens cached` : "";
  const others = costs.filter((cost) => cost.engine !== engine).map(totalMs);
  const elsewhere = others.length > 0 ? `, else ${whole(Math.min(...others))} ms` : "";
  return `${reason}${cached}: ${whole(totalMs(here))} ms${elsewhere}`;
}

const wholeNumber = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function whole(value: number): string {
  return wholeNumber.format(value);
}
