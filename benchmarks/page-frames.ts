/**
 * Frames of the page's Live tab in Chromium while it shows many steps: the longest frame and task, and how many were
 * longer than 50 ms, once the state is there. The state is made up: it comes as the server would send it, more densely.
 *
 *     npx bun benchmarks/page-frames.ts [--spans 100000] [--seconds 15]
 */
import { parseArgs } from "node:util";
import { table } from "../server/cli/table.ts";
import { pageFile } from "../server/http/page.ts";
import {
  type EngineNow,
  type LiveNow,
  type StateEvent,
  type StepBar,
  shownLoad,
} from "../server/http/state-events.ts";
import { sseEvent } from "../server/http/stream.ts";
import { Browser, chromium } from "../tests/e2e/browser.ts";

const WINDOW_MS = 30_000;
const EVENT_MS = 500;

const { values } = parseArgs({
  options: { spans: { type: "string", default: "100000" }, seconds: { type: "string", default: "15" } },
});
const spans = Number(values.spans);
const measuredMs = 1000 * Number(values.seconds);
if (chromium === null) throw new Error("chromium is not in the path");

const browser = await Browser.start(chromium);
const rows: (string | number)[][] = [];
for (const engines of [1, 8, 64]) rows.push([engines, ...(await measure(engines))]);
await browser.close();
console.log(
  table(["engines", "spans", "frames/s", "longest frame, ms", "frames > 50 ms", "longest task, ms"], rows),
);

async function measure(engines: number): Promise<readonly (string | number)[]> {
  const server = serve(engines);
  const page = await browser.open("about:blank");
  const size = { width: 1280, height: 900, deviceScaleFactor: 1, mobile: false };
  await page.call("Emulation.setDeviceMetricsOverride", size);
  await page.go(`${server.url.origin}/#live`);
  const shown = `[...document.querySelectorAll(".strip")].reduce((sum, { dataset }) => sum + Number(dataset.bars), 0)`;
  await page.when(`${shown} > ${0.95 * spans}`);
  const seen = (await page.evaluate(`new Promise((resolve) => {
    const tasks = [0];
    new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration)))
      .observe({ type: "longtask" });
    const frames = [];
    let last = performance.now();
    const until = last + ${measuredMs};
    requestAnimationFrame(function next() {
      const now = performance.now();
      frames.push(now - last);
      last = now;
      if (now < until) requestAnimationFrame(next);
      else setTimeout(() => resolve({ frames, tasks }), 100);
    });
  })`)) as { readonly frames: number[]; readonly tasks: number[] };
  const count = Number(await page.evaluate(shown));
  await page.call("Page.close");
  await server.stop(true);
  const { frames, tasks } = seen;
  const longest = Math.max(...tasks);
  return [
    count,
    ((1000 * frames.length) / measuredMs).toFixed(0),
    Math.max(...frames).toFixed(0),
    frames.filter((ms) => ms > 50).length,
    longest === 0 ? "< 50" : longest.toFixed(0),
  ];
}

/** Server of the page and of a synthetic state, whose first event already fills the window with all spans. */
function serve(engines: number) {
  const startMs = performance.now() - WINDOW_MS;
  const everyMs = (WINDOW_MS * engines) / spans;
  const told = Array.from({ length: engines }, () => 0);
  return Bun.serve({
    port: 0,
    idleTimeout: 0,
    fetch: async (request) => {
      const { pathname } = new URL(request.url);
      if (pathname === "/v1/models") return Response.json({ data: [{ id: "made-up" }] });
      if (pathname !== "/state/stream")
        return (await pageFile(nameOf(pathname))) ?? new Response(null, { status: 404 });
      let timer: ReturnType<typeof setInterval> | undefined;
      const stream = new ReadableStream<string>({
        start: (to) => {
          const facts = {
            version: "0",
            model: "made-up",
            contextMax: 1,
            status: "ready",
            refusal: null,
            isAdmin: true,
          } as const;
          const write = (event: StateEvent) => to.enqueue(sseEvent(JSON.stringify(event)));
          write({ kind: "facts", facts });
          const tell = () => write({ kind: "live", ...stateAt(performance.now() - startMs, everyMs, told) });
          tell();
          timer = setInterval(tell, EVENT_MS);
        },
        cancel: () => clearInterval(timer),
      });
      return new Response(stream.pipeThrough(new TextEncoderStream()), {
        headers: { "content-type": "text/event-stream" },
      });
    },
  });
}

function nameOf(pathname: string): string {
  return pathname === "/" ? "index.html" : pathname.replace("/page/", "");
}

/** State with all steps that have not been sent yet: decodes, drafts and prompts, some with evictions. */
function stateAt(timeMs: number, everyMs: number, told: number[]): LiveNow {
  const engines = told.map((from, engine): EngineNow => {
    const until = Math.floor(timeMs / everyMs);
    told[engine] = until;
    const steps = Array.from({ length: until - from }, (_, at): StepBar => {
      const step = from + at;
      const ms = everyMs * (0.5 + 0.4 * Math.sin(step / 50 + engine));
      const isLong = step % 7 === 0;
      return [step * everyMs, ms, 8, isLong ? 64 : 0, 0, step % 3, step % 11 === 0 ? 2 : 0, 0, 0];
    });
    const load = Object.fromEntries(
      shownLoad.map((name) => [name, 100 * until]),
    ) as unknown as EngineNow["load"];
    return { name: "made-up", load, steps };
  });
  const quantiles = { count: 100, p50Ms: 10, p90Ms: 20, p99Ms: 30 };
  return {
    timeMs,
    targetMs: everyMs,
    engines,
    queue: [],
    firstToken: quantiles,
    betweenTokens: quantiles,
    placements: [],
    jobs: null,
    computed: { requests: 1, jobs: 0 },
  };
}
