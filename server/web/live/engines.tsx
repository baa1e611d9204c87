import type { VNode } from "preact";
import type { EngineView, LiveView } from "./live-state.ts";
import { shortNumber } from "./plot.tsx";
import { Strip } from "./strip.tsx";

/** Engines below each other on one time axis, each less high the more there are. */
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

/** Bars from which the height of all is taken. */
const SAMPLED = 2000;

/** Milliseconds that 98 of 100 bars do not exceed: a few that do are cut, so that the others can be seen. */
function slowMs(bars: LiveView["bars"]): number {
  const every = Math.max(1, Math.floor(bars.reduce((sum, { length }) => sum + length, 0) / SAMPLED));
  const sampled: number[] = [];
  let left = 0;
  for (const own of bars) {
    for (; left < own.length; left += every) sampled.push(own[left]![1]);
    left -= own.length;
  }
  sampled.sort((a, b) => a - b);
  return Math.max(1, 1.1 * (sampled[Math.floor(0.98 * (sampled.length - 1))] ?? 1));
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
