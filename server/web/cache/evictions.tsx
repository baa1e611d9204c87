import type { VNode } from "preact";
import type { EvictionNow } from "../../http/state-events.ts";
import { duration } from "../requests/request.ts";

const reasons: Record<EvictionNow["reason"], string> = {
  least_recent: "not used for the longest time",
  no_checkpoint: "no prompt can begin from it",
  awaited: "only awaited ones were left",
};

/** The last evictions of an engine, newest first. */
export function Evictions({ evictions }: { readonly evictions: readonly EvictionNow[] }): VNode {
  const own = evictions.filter(({ isOwn }) => isOwn).length;
  return (
    <section class="card" aria-labelledby="evictions-title">
      <h2 id="evictions-title">Last evictions</h2>
      <p class="facts">
        {evictions.length} shown, {own} of them for the same key's requests, {evictions.length - own} for
        others'
      </p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and so must be reachable by keyboard */}
      <section class="wide low" tabIndex={0} aria-label="List of evictions">
        <table>
          <thead>
            <tr>
              <th>Tokens</th>
              <th class="right">Pages</th>
              <th class="right">Read</th>
              <th>Why this one</th>
              <th>Whose, and for whom</th>
              <th class="right">Computing it again</th>
            </tr>
          </thead>
          <tbody>
            {evictions.map((one) => (
              <tr key={one.number}>
                <td>
                  {one.start + 1} to {one.end}
                </td>
                <td class="right">{one.pages}</td>
                <td class="right">{one.reads}</td>
                <td>
                  {reasons[one.reason]}, of {one.pagesEvictable} pages
                </td>
                <td>{whose(one)}</td>
                <td class="right">{one.isStored ? "in the lower tier" : duration(one.recomputeMs)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </section>
  );
}

function whose({ of, by, isOwn }: EvictionNow): string {
  if (isOwn) return of === null ? "the same" : `${of}, for itself`;
  if (of === null && by === null) return "another cache salt";
  return `${of ?? "public text"}, for ${by ?? "another"}`;
}
