/**
 * Placements per second with 8, 64 and 256 engines of 12,407 pages each (an A6000), all full, so that each
 * placement evicts. Two workloads: tool calls (simulation/workloads/tools.ts: 1,835 tokens each, 320 tools by
 * Zipf), and multi-turn chats under a few system prompts. Engines are real prefix caches without devices.
 * Between any two placements one engine admits, computes and ends its oldest sequence, and some draw tokens.
 * Their reports keep the index and the live work current. Only the placements are timed. Memory is the growth
 * of the heap while an index is filled, per page that an engine has cached and per span and holder. The
 * engines' own caches are built beforehand.
 */

import { heapStats } from "bun:jsc";
import { SeededRandom } from "../../base/random.ts";
import { Cache } from "../../scheduler/cache/cache.ts";
import { KvEventLog, type KvEvents } from "../../scheduler/cache/kv-event-log.ts";
import { PagePool } from "../../scheduler/cache/page-pool.ts";
import { pathPages } from "../../scheduler/cache/radix-tree.ts";
import {
  type EngineId,
  type PageId,
  type SequenceId,
  type SequenceSpec,
  sharingOf,
} from "../../scheduler/core.ts";
import { openProfile } from "../../scheduler/cost/profiles.ts";
import { Dispatcher } from "../../scheduler/fleet/dispatcher.ts";
import { PrefixIndex } from "../../scheduler/fleet/prefix-index.ts";
import { idleLoad } from "../../scheduler/messages.ts";
import { ours } from "../../scheduler/policies.ts";
import { sequenceSpec } from "../../simulation/factories.ts";
import { promptOf } from "../../simulation/workloads/parts.ts";
import { tools, toolWorkload } from "../../simulation/workloads/tools.ts";

const PAGE_TOKENS = 16;
const PAGES = 12_407;
/** Placed and unended sequences per engine. */
const LIVE = 16;
/** Calls per second and engine. */
const CALLS_PER_SECOND = 5;
/** Engines that draw tokens between two placements. */
const STEPS = 4;
/** Timed placements, and the warm-up ones before them. */
const TIMED = 15_000;
const WARM = 5000;

/** Figures of one workload on one number of engines. */
export interface PlacementRow {
  readonly workload: string;
  readonly engines: number;
  readonly pages: number;
  readonly nodes: number;
  /** Rate by the mean of the fastest 99 %, since other programs delay the rest. */
  readonly placementsPerSecond: number;
  readonly p50Us: number;
  readonly p99Us: number;
  /** Time of the reports between two placements, in microseconds. */
  readonly reportUs: number;
  readonly bytesPerCachedPage: number;
  /** Mean number of engines that have a part of a span. */
  readonly holdersPerSpan: number;
  readonly bytesPerSpan: number;
}

/** Engine without a device: it computes instantly. */
class Holder {
  readonly #pool = new PagePool(PAGES, PAGE_TOKENS);
  readonly #book = new KvEventLog(PAGE_TOKENS, 0);
  readonly #cache = new Cache(this.#pool, this.#book);
  computed = 0;

  /** Computes a prompt; returns its cached tokens. */
  compute(tokens: Int32Array): number {
    const lock = this.#cache.lock(
      tokens,
      tokens.length - 1,
      sharingOf({ adapter: 0, cacheSalt: "" }, PAGE_TOKENS),
    );
    const cached = lock.node.end;
    const locked = pathPages(lock.node);
    const needed = Math.ceil(tokens.length / PAGE_TOKENS) - locked.length;
    if (this.#pool.pagesFree < needed) this.#cache.evict(needed - this.#pool.pagesFree);
    const own = Array.from({ length: needed }, (): PageId => this.#pool.take());
    this.#cache.insertLast(lock, tokens, tokens.length, Int32Array.from([...locked, ...own]));
    this.computed += 1;
    return cached;
  }

  get pagesFree(): number {
    return this.#pool.pagesFree;
  }

  get pagesCached(): number {
    return this.#cache.pagesEvictable;
  }

  take(): KvEvents | null {
    return this.#book.take(this.#cache);
  }

  /** Returns a snapshot of its whole cache. */
  takeAll(): KvEvents {
    this.#book.resync();
    return this.take()!;
  }
}

interface Live {
  readonly id: SequenceId;
  readonly promptTokens: Int32Array;
  readonly engine: EngineId;
}

/** Dispatcher with engines that follow its decisions. */
class Machine {
  readonly dispatcher: Dispatcher;
  readonly holders: readonly Holder[];
  readonly #spec = openProfile("a6000", { spec: { pages: PAGES } }).spec;
  readonly #calls: () => Int32Array;
  readonly #live: Live[] = [];
  /** Decoding sequences, by engine. */
  readonly #drawing: SequenceId[][];
  #first = 0;
  #nextId = 0;
  #nextStep = 0;
  #nowMs = 0;
  reportNs = 0;

  constructor(engines: number, calls: () => Int32Array) {
    const { profile } = openProfile("a6000");
    this.#calls = calls;
    this.holders = Array.from({ length: engines }, () => new Holder());
    this.#drawing = this.holders.map(() => []);
    const members = this.holders.map(() => ({ spec: this.#spec, costs: profile }));
    this.dispatcher = new Dispatcher(ours(), members);
  }

  /** Places a call; returns the nanoseconds of the placement. */
  place(): number {
    const promptTokens = this.#calls();
    const id = this.#nextId as SequenceId;
    this.#nextId += 1;
    this.#nowMs += 1000 / CALLS_PER_SECOND / this.holders.length;
    const spec = specOf(id, promptTokens);
    const startNs = Bun.nanoseconds();
    const { engine } = this.dispatcher.place(spec, this.#nowMs)!;
    const tookNs = Bun.nanoseconds() - startNs;
    this.#live.push({ id, promptTokens, engine });
    this.#goOn();
    return tookNs;
  }

  /** Computes the oldest sequence, and ends the one a fixed number of places behind it. */
  #goOn(): void {
    const { holders, dispatcher } = this;
    const half = (LIVE * holders.length) / 2;
    const computed = this.#live[this.#live.length - half];
    if (computed !== undefined) {
      const { engine, id, promptTokens } = computed;
      const cachedTokens = holders[engine]!.compute(promptTokens);
      this.#timed(engine, () => {
        dispatcher.started(id, cachedTokens, this.#nowMs);
        dispatcher.drew(id);
      });
      this.#drawing[engine]!.push(id);
    }
    if (this.#live.length - this.#first > 2 * half) {
      const { engine, id } = this.#live[this.#first]!;
      this.#first += 1;
      this.#drawing[engine]!.splice(this.#drawing[engine]!.indexOf(id), 1);
      this.#timed(engine, () => dispatcher.ended(id, true));
    }
    for (let step = 0; step < STEPS; step++) {
      const engine = this.#nextStep as EngineId;
      this.#nextStep = (this.#nextStep + 1) % holders.length;
      this.#timed(engine, () => {
        for (const id of this.#drawing[engine]!) dispatcher.drew(id);
      });
    }
  }

  #timed(engine: EngineId, told: () => void): void {
    const holder = this.holders[engine]!;
    const { pagesFree, pagesCached, computed } = holder;
    const kvEvents = holder.take();
    const load = { ...idleLoad(this.#spec), pagesFree, pagesCached, stepsTotal: computed, stepMs: 50 };
    const startNs = Bun.nanoseconds();
    this.dispatcher.reported(engine, load, kvEvents);
    told();
    this.reportNs += Bun.nanoseconds() - startNs;
  }
}

function measurePlacement(workload: string, engines: number, calls: () => Int32Array): PlacementRow {
  const machine = new Machine(engines, calls);
  while (machine.holders.some(({ pagesFree }) => pagesFree > 0.02 * PAGES)) machine.place();
  for (let i = 0; i < WARM; i++) machine.place();
  machine.reportNs = 0;
  const timesNs = Array.from({ length: TIMED }, () => machine.place()).sort((a, b) => a - b);
  const fastest = timesNs.slice(0, Math.floor(0.99 * TIMED));
  const { nodes, pages } = machine.dispatcher.stats();
  return {
    workload,
    engines,
    pages,
    nodes,
    placementsPerSecond: (1e9 * fastest.length) / sum(fastest),
    p50Us: timesNs[Math.floor(0.5 * TIMED)]! / 1000,
    p99Us: timesNs[Math.floor(0.99 * TIMED)]! / 1000,
    reportUs: machine.reportNs / TIMED / 1000,
    ...memoryOf(machine.holders.map((holder) => holder.takeAll())),
  };
}

/** Returns the heap bytes of an index after all KV events. */
function memoryOf(
  told: readonly KvEvents[],
): Pick<PlacementRow, "bytesPerCachedPage" | "holdersPerSpan" | "bytesPerSpan"> {
  const index = new PrefixIndex(told.length, 180_000);
  const before = heapBytes();
  for (const [engine, kvEvents] of told.entries()) index.apply(engine, kvEvents);
  const bytes = heapBytes() - before;
  const { nodes } = index.size;
  let holders = 0;
  for (const node of index.nodes()) {
    for (let engine = 0; engine < told.length; engine++) holders += Number(node.cached(engine) > 0);
  }
  return {
    bytesPerCachedPage: bytes / sum(told.map((_, engine) => index.pagesCached(engine))),
    holdersPerSpan: holders / nodes,
    bytesPerSpan: bytes / nodes,
  };
}

function heapBytes(): number {
  Bun.gc(true);
  const { heapSize, extraMemorySize } = heapStats();
  return heapSize + extraMemorySize;
}

/** Yields prompts of tool calls, one after the other. */
function toolCalls(): () => Int32Array {
  const toolTokens = tools(320, 1);
  let seed = 0;
  let workload = toolWorkload(toolTokens, { seed, callsPerSecond: 36, calls: 0, exponent: 1.1 });
  return () => {
    let arrival = workload.next();
    if (arrival === null) {
      seed += 1;
      workload = toolWorkload(toolTokens, { seed, callsPerSecond: 36, calls: 10_000, exponent: 1.1 });
      arrival = workload.next();
    }
    return arrival!.promptTokens();
  };
}

/**
 * Yields turns of chats, each with one of 24 system prompts of 400 to 1,600 tokens. A chat has up to 12 turns
 * of 64 to 400 tokens each, question and answer; `chatsAtOnce` chats are interleaved.
 */
function chatTurns(chatsAtOnce: number): () => Int32Array {
  const random = new SeededRandom(5);
  const chats: { name: number; tokens: number[] }[] = [];
  let names = 1000;
  return () => {
    const at = random.below(chatsAtOnce);
    const old = chats[at];
    if (old === undefined || old.tokens.length === 13) names += 1;
    const chat = old === undefined || old.tokens.length === 13 ? { name: names, tokens: [] } : old;
    chats[at] = chat;
    chat.tokens.push(chat.tokens.length === 0 ? 0 : 64 + random.below(336));
    const application = chat.name % 24;
    const turns = chat.tokens.map((tokens, turn) => ({ name: chat.name * 16 + turn, tokens }));
    return promptOf([{ name: application, tokens: 400 + 50 * application }, ...turns.slice(1)])();
  };
}

function specOf(id: SequenceId, promptTokens: Int32Array): SequenceSpec {
  return { ...sequenceSpec(promptTokens, 43), id };
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

/** Measures both workloads on each number of engines. */
export function measurePlacements(engines: readonly number[] = [8, 64, 256]): readonly PlacementRow[] {
  return engines.flatMap((count) => [
    measurePlacement("tools", count, toolCalls()),
    measurePlacement("chats", count, chatTurns(40 * count)),
  ]);
}

/** Formats the rows. */
export function placementTable(rows: readonly PlacementRow[]): string {
  const lines = rows.map((row) => {
    const cells = [
      String(row.engines).padStart(7),
      String(row.pages).padStart(10),
      String(row.nodes).padStart(8),
      Math.round(row.placementsPerSecond).toLocaleString("en").padStart(13),
      row.p50Us.toFixed(0).padStart(8),
      row.p99Us.toFixed(0).padStart(8),
      row.reportUs.toFixed(1).padStart(21),
      row.bytesPerCachedPage.toFixed(0).padStart(15),
      row.bytesPerSpan.toFixed(0).padStart(11),
      row.holdersPerSpan.toFixed(1).padStart(13),
    ];
    return `${row.workload.padEnd(10)} ${cells.join(" ")}`;
  });
  const head =
    "placements engines      pages    spans  placements/s   p50 us   p99 us   report us/placement   bytes per page   per span  holders/span";
  return [head, ...lines].join("\n");
}
