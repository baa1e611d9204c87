/**
 * Placements per second on tool calls (scheduler/sim/workloads/tools.ts: 1,835 tokens each, 320 tools by Zipf) with
 * 8 engines. Engines are real prefix caches without devices: what they tell keeps the index true, outside of what is
 * timed. Memory is what the heap grows by while the index is filled, per page that an engine has cached; the engines' own
 * caches are built beforehand.
 */

import { heapStats } from "bun:jsc";
import { Cache } from "../../scheduler/cache/cache.ts";
import type { CacheNotices } from "../../scheduler/cache/notice.ts";
import { NoticeBook } from "../../scheduler/cache/notices.ts";
import { PagePool } from "../../scheduler/cache/page-pool.ts";
import { pathPages } from "../../scheduler/cache/radix-tree.ts";
import { chatService, type EngineId, type PageId, type SequenceId } from "../../scheduler/core.ts";
import { openProfile } from "../../scheduler/cost/profiles.ts";
import { Dispatcher } from "../../scheduler/dispatch/dispatcher.ts";
import type { PlacementRequest } from "../../scheduler/dispatch/placement.ts";
import { PrefixIndex } from "../../scheduler/dispatch/prefix-index.ts";
import { idleLoad } from "../../scheduler/messages.ts";
import { ours } from "../../scheduler/policies.ts";
import type { Workload } from "../../scheduler/sim/workload.ts";
import { tools, toolWorkload } from "../../scheduler/sim/workloads/tools.ts";

const ENGINES = 8;
const PAGE_TOKENS = 16;
const AT_ONCE = 256;
const ROUNDS_WARM = 20;
const ROUNDS = 60;

/** What was measured of one size of caches. */
export interface PlacementRow {
  readonly pages: number;
  readonly spans: number;
  /** Of the median round: others may run on the machine, and a round that they fall into is no measure. */
  readonly placementsPerSecond: number;
  readonly p50Us: number;
  readonly p99Us: number;
  /** Of reports with notices, per placement. */
  readonly reportUs: number;
  readonly bytesPerCachedPage: number;
}

/** An engine without a device: it has computed what it is given at once. */
class Holder {
  readonly #pool: PagePool;
  readonly #book = new NoticeBook(PAGE_TOKENS, 0);
  readonly #cache: Cache;
  computed = 0;

  constructor(pages: number) {
    this.#pool = new PagePool(pages, PAGE_TOKENS);
    this.#cache = new Cache(this.#pool, this.#book);
  }

  compute(tokens: Int32Array): void {
    const lease = this.#cache.lease(tokens, tokens.length - 1, "");
    const leased = pathPages(lease.span);
    const needed = Math.ceil(tokens.length / PAGE_TOKENS) - leased.length;
    if (this.#pool.pagesFree < needed) this.#cache.evict(needed - this.#pool.pagesFree);
    const own = Array.from({ length: needed }, (): PageId => this.#pool.take());
    this.#cache.insertLast(lease, tokens, tokens.length, Int32Array.from([...leased, ...own]));
    this.computed += 1;
  }

  get pagesFree(): number {
    return this.#pool.pagesFree;
  }

  take(): CacheNotices | null {
    return this.#book.take(this.#cache);
  }

  /** Tells everything that it has. */
  takeAll(): CacheNotices {
    this.#book.resync();
    return this.take()!;
  }
}

/** Measures with caches of `pages` pages per engine. */
function measurePlacement(pages: number): PlacementRow {
  const { profile, spec } = openProfile("a6000", { spec: { pages } });
  const dispatcher = new Dispatcher(
    ours(100),
    Array.from({ length: ENGINES }, () => ({ spec, costs: profile })),
  );
  const holders = Array.from({ length: ENGINES }, () => new Holder(pages));
  const calls = callsWithoutEnd();
  let nowMs = 0;
  let nextId = 0;
  let reportNs = 0;

  const report = (engine: number): void => {
    const holder = holders[engine]!;
    const notices = holder.take();
    const load = { ...idleLoad(spec), pagesFree: holder.pagesFree, stepsTotal: holder.computed, stepMs: 50 };
    const startNs = Bun.nanoseconds();
    dispatcher.reported(engine as EngineId, load, notices);
    reportNs += Bun.nanoseconds() - startNs;
  };
  /** Places calls one after the other, timing each, then has all of them computed. */
  const round = (timesNs: number[]): void => {
    const prompts = Array.from({ length: AT_ONCE }, calls);
    const placed = prompts.map((promptTokens) => {
      const id = nextId as SequenceId;
      nextId += 1;
      nowMs += 0.02;
      const startNs = Bun.nanoseconds();
      const placement = dispatcher.place(id, requestOf(promptTokens), nowMs);
      timesNs.push(Bun.nanoseconds() - startNs);
      return { id, promptTokens, engine: placement!.engine };
    });
    for (const { engine, promptTokens } of placed) holders[engine]!.compute(promptTokens);
    for (let engine = 0; engine < ENGINES; engine++) report(engine);
    for (const { id } of placed) {
      dispatcher.started(id, 0, nowMs);
      dispatcher.drew(id);
      dispatcher.ended(id, true);
    }
  };

  const warm: number[] = [];
  while (holders.some(({ pagesFree }) => pagesFree > 0.02 * pages)) round(warm);
  for (let i = 0; i < ROUNDS_WARM; i++) round(warm);
  reportNs = 0;
  const timesNs: number[] = [];
  for (let i = 0; i < ROUNDS; i++) round(timesNs);
  const roundsNs = Array.from({ length: ROUNDS }, (_, i) =>
    sum(timesNs.slice(i * AT_ONCE, (i + 1) * AT_ONCE)),
  );
  roundsNs.sort((a, b) => a - b);
  const { spans, pages: indexPages } = dispatcher.stats();
  timesNs.sort((a, b) => a - b);
  return {
    pages: indexPages,
    spans,
    placementsPerSecond: (1e9 * AT_ONCE) / roundsNs[ROUNDS / 2]!,
    p50Us: timesNs[Math.floor(0.5 * timesNs.length)]! / 1000,
    p99Us: timesNs[Math.floor(0.99 * timesNs.length)]! / 1000,
    reportUs: reportNs / timesNs.length / 1000,
    bytesPerCachedPage: bytesPerPage(holders.map((holder) => holder.takeAll())),
  };
}

/** Bytes of heap per cached page of an index of everything told. */
function bytesPerPage(told: readonly CacheNotices[]): number {
  const index = new PrefixIndex(ENGINES, 180_000);
  const before = heapBytes();
  for (const [engine, notices] of told.entries()) index.apply(engine, notices);
  const bytes = heapBytes() - before;
  return bytes / sum(told.map((_, engine) => index.pagesCached(engine)));
}

function heapBytes(): number {
  Bun.gc(true);
  const { heapSize, extraMemorySize } = heapStats();
  return heapSize + extraMemorySize;
}

/** Prompts of tool calls, one after the other. */
function callsWithoutEnd(): () => Int32Array {
  const toolTokens = tools(320, 1);
  let seed = 0;
  let workload: Workload | null = null;
  return () => {
    let arrival = workload?.next() ?? null;
    if (arrival === null) {
      seed += 1;
      workload = toolWorkload(toolTokens, { seed, callsPerSecond: 36, calls: 100_000, exponent: 1.1 });
      arrival = workload.next();
    }
    return arrival!.promptTokens();
  };
}

function requestOf(promptTokens: Int32Array): PlacementRequest {
  const stop = { tokensMax: 43, tokensMin: 0, stopTokens: [] };
  return { promptTokens, drawnTokens: [], cacheSalt: "", service: chatService, stop };
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

/** Caches as they are on an A6000, and a tree of a million pages. */
export function measurePlacements(): readonly PlacementRow[] {
  return [measurePlacement(12_407), measurePlacement(125_000)];
}

/** The rows for people. */
export function placementTable(rows: readonly PlacementRow[]): string {
  const lines = rows.map((row) => {
    const cells = [
      String(row.pages).padStart(17),
      String(row.spans).padStart(7),
      Math.round(row.placementsPerSecond).toLocaleString("en").padStart(13),
      row.p50Us.toFixed(1).padStart(8),
      row.p99Us.toFixed(1).padStart(8),
      row.reportUs.toFixed(1).padStart(21),
      row.bytesPerCachedPage.toFixed(0).padStart(23),
    ];
    return cells.join(" ");
  });
  const head =
    "pages in the tree   spans  placements/s   p50 us   p99 us   report us/placement   bytes per cached page";
  return [head, ...lines].join("\n");
}
