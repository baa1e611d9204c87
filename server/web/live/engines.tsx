import type { VNode } from "preact";
import { type EngineView, type LiveView, shortNumber, slowMs } from "../../http/live-view.ts";
import { Strip } from "./strip.tsx";

/** Engines one below the other on one time axis; the more there are, the less high each is. */
export function Engines({ view }: { readonly view: LiveView }): VNode {
  const { engines, bars, targetMs, timeMs } = view;
  const heightPx = engines.length === 1 ? 130 : engines.length <= 4 ? 72 : engines.length <= 16 ? 40 : 22;
  const isDense = engines.length > 16;
  const topMs = Math.max(slowMs(bars), (targetMs ?? 0) * 1.15);
  return (
    <section class={isDense ? "card engines dense" : "card engines"} aria-labelledby="engines-title">
      <div class="head">
        <h2 id="engines-title">Steps of the last 30 seconds, up to {shortNumber(topMs)} ms</h2>
        <Legend hasTarget={targetMs !== null} />
      </div>
      <ul>
        {engines.map((engine, at) => (
          <li key={at}>
            <Facts engine={engine} at={at} isDense={isDense} />
            <Strip
              label={`Engine ${at}: ${engine.load.running} running, last step ${shortNumber(engine.load.stepMs)} ms`}
              bars={bars[at]!}
              nowMs={timeMs}
              targetMs={targetMs}
              topMs={topMs}
              heightPx={heightPx}
            />
          </li>
        ))}
      </ul>
    </section>
  );
}

function Facts(given: {
  readonly engine: EngineView;
  readonly at: number;
  readonly isDense: boolean;
}): VNode {
  const { engine, at, isDense } = given;
  const { running, waiting, pagesTotal, pagesFree, pagesCached } = engine.load;
  const owned = pagesTotal - pagesFree - pagesCached;
  const pages = `${owned} pages owned, ${pagesCached} cached, ${pagesFree} free`;
  const work = `${running} running${waiting > 0 ? `, ${waiting} waiting` : ""}`;
  return (
    <div class="engine" title={`${engine.name}: ${work}; ${pages}`}>
      <p>
        <b>{at}</b> {isDense ? "" : `${shortNumber(engine.tokensPerSecond)} tokens/s, `}
        <span data-field="running">{work}</span>
      </p>
      <svg
        class="pages"
        viewBox={`0 0 ${pagesTotal} 1`}
        preserveAspectRatio="none"
        role="img"
        aria-label={pages}
      >
        <rect class="owned" width={owned} height="1" />
        <rect class="cached" x={owned} width={pagesCached} height="1" />
      </svg>
    </div>
  );
}

function Legend({ hasTarget }: { readonly hasTarget: boolean }): VNode {
  return (
    <p class="legend">
      <span class="key decode">decodes</span>
      <span class="key draft">drafts</span>
      <span class="key prompt">prompts</span>
      <span class="key warm">warmed</span>
      <span class="key muted">evictions</span>
      <span class="key alert">preemptions{hasTarget ? ", and the target" : ""}</span>
      <span class="key cached">cached pages</span>
    </p>
  );
}
