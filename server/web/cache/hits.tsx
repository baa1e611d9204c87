import type { VNode } from "preact";
import type { KeyHits } from "../../http/state-events.ts";

/** Share of cached prompt tokens, by API key. */
export function Hits({ keys }: { readonly keys: readonly KeyHits[] }): VNode {
  return (
    <section class="card" aria-labelledby="hits-title">
      <h2 id="hits-title">Found in the cache today, by key</h2>
      <ul class="hits">
        {keys.map(({ key, promptTokens, cachedTokens }) => (
          <li key={key}>
            <span class="id">{key ?? "all requests"}</span>
            <progress
              aria-label={`Found for ${key ?? "all requests"}`}
              max={promptTokens}
              value={cachedTokens}
            />
            <span>
              {Math.round((100 * cachedTokens) / promptTokens)} % of {promptTokens.toLocaleString()} tokens
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
