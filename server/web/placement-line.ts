import { type Placement, totalMs } from "../../scheduler/fleet/placement.ts";

/** A placement for a narrow column: "exploit, 3,072 tokens cached: 120 ms, else 340 ms", where the second time is that of
 *  the cheapest of the other engines; and no times where none were compared. */
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
