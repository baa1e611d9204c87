/** Checks the index of several engines against the engines' own caches, over any history. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { sharingBeside } from "../../tests/support/sharing.ts";
import { Cache } from "../cache/cache.ts";
import { KvEventLog, type KvEvents } from "../cache/kv-event-log.ts";
import { hashPrompt } from "../cache/page-hash.ts";
import { PagePool } from "../cache/page-pool.ts";
import { pathPages } from "../cache/radix-tree.ts";
import {
  EVICTABLE,
  FIRST,
  FRONT_WORDS,
  HITS_NOW,
  HITS_THEN,
  type IndexNode,
  SINCE_MS,
} from "./index-node.ts";
import { checkIndex } from "./integrity.ts";
import { PrefixIndex } from "./prefix-index.ts";

const PAGE_TOKENS = 4;
const ENGINES = 3;
const WINDOW_MS = 1000;
const STEP_MS = 60;
const sharingOf = sharingBeside([0, 0, 1, 0, 0, 1, 0, 0, 0, 0], PAGE_TOKENS);

/** Engine's cache, with its log of KV events. */
class Member {
  #pool = new PagePool(24, PAGE_TOKENS);
  #epoch = 0;
  #book = new KvEventLog(PAGE_TOKENS, 0);
  #cache = new Cache(this.#pool, this.#book);

  /**
   * Computes a sequence with the cached prefix, and hands over `early` pages while it runs and the rest at
   * its end. If `isGood` is false the contents are in doubt, and the rest is discarded.
   */
  compute(tokens: Int32Array, salt: string, early: number, isGood: boolean): void {
    let lock = this.#cache.lock(tokens, tokens.length, sharingOf(tokens, salt));
    const locked = pathPages(lock.node);
    const needed = Math.ceil(tokens.length / PAGE_TOKENS) - locked.length;
    if (this.#pool.pagesFree < needed) this.#cache.evict(needed - this.#pool.pagesFree);
    const own = Array.from({ length: needed }, () => this.#pool.take());
    const table = Int32Array.from([...locked, ...own]);
    const wholeEnd = tokens.length - (tokens.length % PAGE_TOKENS);
    const earlyEnd = Math.min(wholeEnd, lock.node.end + early * PAGE_TOKENS);
    lock = this.#cache.insert(lock, tokens, earlyEnd, table);
    if (isGood) this.#cache.insertLast(lock, tokens, tokens.length, table);
    else {
      for (const page of table.subarray(earlyEnd / PAGE_TOKENS)) this.#pool.release(page as never);
      this.#cache.discard(lock);
    }
  }

  evict(pages: number): void {
    this.#cache.evict(pages);
  }

  take(): KvEvents | null {
    return this.#book.take(this.#cache);
  }

  resync(): void {
    this.#book.resync();
  }

  /** Loses the engine, and brings it back empty. Returns its new incarnation. */
  restart(): number {
    this.#epoch += 1;
    this.#book = new KvEventLog(PAGE_TOKENS, this.#epoch);
    this.#pool = new PagePool(24, PAGE_TOKENS);
    this.#cache = new Cache(this.#pool, this.#book);
    return this.#epoch;
  }

  /** Hashes of all whole pages that are cached. */
  hashes(): Set<number> {
    return new Set([...this.#cache.nodes()].flatMap(({ node }) => [...node.hashes]));
  }
}

/** A sequence, from its placement to its end. */
interface Placed {
  readonly end: IndexNode | null;
  readonly path: Float64Array;
  readonly engine: number;
  isSettled: boolean;
}

const tokens = fc
  .array(fc.integer({ min: 0, max: 1 }), { minLength: 1, maxLength: 40 })
  .map((list) => Int32Array.from(list));
const salt = fc.constantFrom("", "other");
const engine = fc.nat(ENGINES - 1);
const history = fc.array(
  fc.oneof(
    fc.record({
      kind: fc.constant("compute" as const),
      engine,
      tokens,
      salt,
      early: fc.nat(10),
      isGood: fc.boolean(),
    }),
    // It is computed, reported and hit twice, the second time up to a page, where it may be split.
    fc.record({ kind: fc.constant("visit" as const), engine, tokens, salt, pages: fc.nat(10) }),
    fc.record({ kind: fc.constant("evict" as const), engine, pages: fc.nat(12) }),
    fc.record({ kind: fc.constant("tell" as const), engine }),
    fc.record({ kind: fc.constant("promise" as const), engine, tokens, salt }),
    fc.record({ kind: fc.constant("settle" as const), which: fc.nat(100) }),
    fc.record({ kind: fc.constant("release" as const), which: fc.nat(100) }),
    // A report is lost on the way; the engine dies.
    fc.record({ kind: fc.constant("drop" as const), engine }),
    fc.record({ kind: fc.constant("restart" as const), engine }),
  ),
  { minLength: 10, maxLength: 60, size: "max" },
);

test("the index has what the engines' caches have, whatever happens", () => {
  fc.assert(
    fc.property(history, (events) => {
      const members = Array.from({ length: ENGINES }, () => new Member());
      const index = new PrefixIndex(ENGINES, WINDOW_MS);
      const sequences: Placed[] = [];
      const tell = (at: number): void => {
        const kvEvents = members[at]!.take();
        if (kvEvents !== null && !index.apply(at, kvEvents)) members[at]!.resync();
      };
      events.forEach((event, step) => {
        if (event.kind === "compute")
          members[event.engine]!.compute(event.tokens, event.salt, event.early, event.isGood);
        else if (event.kind === "visit") {
          members[event.engine]!.compute(event.tokens, event.salt, 0, true);
          tell(event.engine);
          const path = pathOf(event.tokens, event.salt);
          for (const visited of [path, path.slice(0, event.pages)]) {
            const end = index.addInFlight(visited, event.engine, step * STEP_MS);
            if (end !== null) index.release(end, event.engine, false);
            checkEvictions(index, step);
          }
        } else if (event.kind === "evict") members[event.engine]!.evict(event.pages);
        else if (event.kind === "tell") tell(event.engine);
        else if (event.kind === "promise") {
          const path = pathOf(event.tokens, event.salt);
          const end = index.addInFlight(path, event.engine, step * STEP_MS);
          sequences.push({ end, path, engine: event.engine, isSettled: false });
        } else if (event.kind === "drop") members[event.engine]!.take();
        else if (event.kind === "restart") index.restart(event.engine, members[event.engine]!.restart());
        else if (event.kind === "settle") {
          const sequence = sequences[event.which % Math.max(1, sequences.length)];
          if (sequence === undefined || sequence.isSettled) return;
          if (sequence.end !== null) index.settle(sequence.end, sequence.engine);
          sequence.isSettled = true;
        } else {
          const [gone] = sequences.splice(event.which % Math.max(1, sequences.length), 1);
          if (gone?.end) index.release(gone.end, gone.engine, gone.isSettled);
        }
        checkIndex(index, ENGINES);
        checkEvictions(index, step);
        const [found, cached] = [new Int32Array(ENGINES), new Int32Array(ENGINES)];
        for (const { path, engine, isSettled } of sequences) {
          index.match(path, found, cached);
          if (!isSettled) expect(found[engine]).toBe(path.length);
          for (let at = 0; at < ENGINES; at++)
            expect(cached[at]).toBe(leadingPages(path, cachedHashes(index, at)));
        }
      });
      for (const { end, engine, isSettled } of sequences) {
        if (end !== null) index.release(end, engine, isSettled);
      }
      // An index that lost the last events learns of it by the next ones.
      members.forEach((member, at) => {
        for (let round = 0; round < 3; round++) {
          member.compute(
            Int32Array.from({ length: 8 }, () => 2 + round),
            "",
            0,
            true,
          );
          tell(at);
        }
        expect(cachedHashes(index, at)).toEqual(member.hashes());
      });
      checkIndex(index, ENGINES);
    }),
    runs(500),
  );
});

test("a match is the longest prefix that the engine has, in whole pages", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(engine, tokens, salt), { maxLength: 20 }),
      tokens,
      salt,
      (told, asked, of) => {
        const members = Array.from({ length: ENGINES }, () => new Member());
        const index = new PrefixIndex(ENGINES, WINDOW_MS);
        for (const [at, list, under] of told) {
          members[at]!.compute(list, under, 0, true);
          const kvEvents = members[at]!.take();
          if (kvEvents !== null) index.apply(at, kvEvents);
        }
        const path = pathOf(asked, of);
        const [found, cached] = [new Int32Array(ENGINES), new Int32Array(ENGINES)];
        index.match(path, found, cached);
        members.forEach((member, at) => {
          expect(found[at]).toBe(leadingPages(path, member.hashes()));
        });
        expect(cached).toEqual(found);
      },
    ),
    runs(500),
  );
});

function recomputeMs(pages: number, first: number): number {
  return pages * (10 + first);
}

/** Compares the cost of evicting pages with that of a walk over the nodes themselves. */
function checkEvictions(index: PrefixIndex, step: number): void {
  index.match(new Float64Array(0), new Int32Array(ENGINES), new Int32Array(ENGINES));
  const nowMs = step * STEP_MS;
  const pages = step % 24;
  for (let engine = 0; engine < ENGINES; engine++) {
    expect(index.evictionMs(engine, pages, 1, nowMs, recomputeMs)).toBe(
      plainEvictionMs(index, engine, pages, nowMs),
    );
  }
}

function plainEvictionMs(index: PrefixIndex, engine: number, pages: number, nowMs: number): number {
  const words = new Float64Array(FRONT_WORDS);
  let left = pages;
  let sumMs = 0;
  for (const node of index.evictionOrder(engine)) {
    node.readEviction(engine, nowMs, WINDOW_MS, words, 0);
    const taken = Math.min(left, words[EVICTABLE]!);
    const share = 1 - (nowMs - words[SINCE_MS]!) / WINDOW_MS;
    const returns = words[HITS_NOW]! + share * words[HITS_THEN]!;
    sumMs += recomputeMs(taken, words[FIRST]! + words[EVICTABLE]! - taken) * returns;
    left -= taken;
  }
  return sumMs;
}

function pathOf(tokens: Int32Array, salt: string): Float64Array {
  return hashPrompt(tokens, Math.floor(tokens.length / PAGE_TOKENS), PAGE_TOKENS, sharingOf(tokens, salt));
}

function leadingPages(path: Float64Array, hashes: ReadonlySet<number>): number {
  const missing = path.findIndex((hash) => !hashes.has(hash));
  return missing === -1 ? path.length : missing;
}

function cachedHashes(index: PrefixIndex, engine: number): Set<number> {
  return new Set([...index.nodes()].flatMap((node) => [...node.hashes.subarray(0, node.cached(engine))]));
}
