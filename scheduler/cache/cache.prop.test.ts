/** The cache against an oracle that remembers every prefix, and the pages against the rules of ownership. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { assert } from "../../base/assert.ts";
import { runs } from "../../tests/support/property.ts";
import { sharingBeside } from "../../tests/support/sharing.ts";
import type { PageId, StateSlot } from "../core.ts";
import { Cache, type CacheLock } from "./cache.ts";
import { GreedyDual, type SavedState } from "./checkpoints.ts";
import { checkCache, checkSlots } from "./integrity.ts";
import { PagePool } from "./page-pool.ts";
import { type Checkpoint, deepest, PrefixWaiter, pathPages, type RadixNode } from "./radix-tree.ts";

const PAGE_TOKENS = 3;
/** A text that is public: its beginning is shared under every salt. */
const sharingOf = sharingBeside([0, 1, 1, 0, 1, 0, 0, 1, 1], PAGE_TOKENS);

const computeMs = (tokens: number, context: number): number => tokens * (10 + context);

/** A sequence in the making: what the engine keeps of one, without an engine. */
interface Holder {
  readonly tokens: Int32Array;
  readonly salt: string;
  lock: CacheLock;
  computed: number;
  /** Locked pages, then own ones. */
  readonly table: Int32Array;
  pageCount: number;
  /** State slot, and states saved on the way; null: the model has no states. */
  readonly state: { readonly slot: StateSlot; from: Checkpoint | null; saved: SavedState[] } | null;
}

/** A sequence that ended, and is held for another one. */
interface Held {
  readonly tokens: Int32Array;
  readonly salt: string;
  readonly lock: CacheLock;
  readonly checkpoint: Checkpoint | null;
}

/**
 * A cache under test with a model beside it: contexts of written page slots and state slots, and the set of
 * inserted prefixes. A context is text: "0110" is the slot of token 0 after 0, 1, 1.
 */
class Bench {
  readonly pool: PagePool;
  readonly cache: Cache;
  readonly holders: Holder[] = [];
  /** Waiters with the depth in their last callback. */
  readonly waiters = new Map<PrefixWaiter, number>();
  readonly held: Held[] = [];
  readonly #states = new Map<StateSlot, string>();
  readonly #slots = new Map<string, string>();
  readonly #inserted = new Map<string, Set<string>>([
    ["", new Set()],
    ["other", new Set()],
  ]);
  readonly #insertedPublic = new Set<string>();

  /** `slots`: state slots; null: the model has no states. */
  constructor(pages: number, slots: number | null) {
    this.pool = new PagePool(pages, PAGE_TOKENS);
    this.cache = new Cache(
      this.pool,
      null,
      slots === null ? null : { slots, policy: new GreedyDual(), computeMs },
    );
  }

  /** Longest prefix ever inserted: what an endless cache would find. */
  oracle(tokens: Int32Array, limit: number, salt: string): number {
    let length = 0;
    while (length < limit && this.#prefixes(tokens, length + 1, salt).has(context(tokens, length + 1)))
      length += 1;
    return length;
  }

  /** Set that remembers prefixes of this length. */
  #prefixes(tokens: Int32Array, length: number, salt: string): Set<string> {
    const isPublic = length <= sharingOf(tokens, salt).publicTokens;
    return isPublic ? this.#insertedPublic : this.#inserted.get(salt)!;
  }

  /** Begins a sequence if there is room for it, and computes all of it but nothing is inserted yet. */
  begin(tokens: Int32Array, salt: string): void {
    const sharing = sharingOf(tokens, salt);
    const { checkpoints } = this.cache;
    const { usable, pagesPinned } = this.cache.match(tokens, tokens.length, sharing);
    const needed = Math.ceil(tokens.length / PAGE_TOKENS) - Math.floor(usable / PAGE_TOKENS);
    const available = this.pool.pagesFree + this.cache.pagesEvictable - pagesPinned;
    if (needed > available || checkpoints?.available === 0) return;

    const lock = this.cache.lock(tokens, usable, sharing);
    const isPartial = usable % PAGE_TOKENS !== 0;
    const source = isPartial ? this.cache.lockSource(tokens, usable, sharing) : null;
    expect(this.pool.pagesFree + this.cache.pagesEvictable).toBe(available);
    const from = checkpoints === null ? null : this.#checkpointOf(tokens, salt);
    expect(from?.depth ?? 0).toBe(checkpoints === null ? 0 : usable);
    const table = new Int32Array(Math.ceil(tokens.length / PAGE_TOKENS));
    const locked = pathPages(lock.node);
    table.set(locked);
    this.#reserve(needed);
    for (let i = locked.length; i < table.length; i++) table[i] = this.pool.take();
    if (source !== null) {
      const whole = usable - (usable % PAGE_TOKENS);
      for (let position = whole; position < usable; position++) {
        expect(this.#slots.get(slotName(source.page, position))).toBe(context(tokens, position + 1));
      }
      this.cache.release(source.lock);
    }
    this.#write(tokens, table, lock.node.end);
    const state = checkpoints === null ? null : this.#compute(tokens, from);
    this.holders.push({ tokens, salt, lock, computed: tokens.length, table, pageCount: table.length, state });
    this.checkReadable();
  }

  /** Computes a state, and saves it at the last page border on the way if that is worth a slot. */
  #compute(tokens: Int32Array, from: Checkpoint | null): Holder["state"] {
    const checkpoints = this.cache.checkpoints!;
    const depth = from?.depth ?? 0;
    if (from !== null) expect(this.#states.get(from.slot)).toBe(context(tokens, depth));
    const begun = checkpoints.begin(from);
    const border = tokens.length - 1 - ((tokens.length - 1) % PAGE_TOKENS);
    const slot = border > depth ? checkpoints.takeFor("prompt", border, depth) : null;
    if (slot !== null) this.#states.set(slot, context(tokens, border));
    // The slot of a pinned checkpoint is not taken for another state.
    if (begun.from !== null) expect(this.#states.get(begun.from.slot)).toBe(context(tokens, depth));
    this.#states.set(begun.slot, context(tokens, tokens.length));
    return { ...begun, saved: slot === null ? [] : [{ depth: border, slot, kind: "prompt" }] };
  }

  #checkpointOf(tokens: Int32Array, salt: string): Checkpoint | null {
    const waiter = new PrefixWaiter(sharingOf(tokens, salt), tokens, tokens.length, () => {});
    this.cache.track(waiter);
    this.cache.untrack(waiter);
    return waiter.checkpoint!;
  }

  #endReading({ state }: Holder): void {
    if (state === null || state.from === null) return;
    this.cache.checkpoints!.unpin(state.from);
    state.from = null;
  }

  /** Hands over up to `pages` more of a holder's complete pages. */
  publish(holder: Holder, pages: number): void {
    const locked = holder.lock.node.end / PAGE_TOKENS;
    const end = Math.min(Math.floor(holder.computed / PAGE_TOKENS), locked + pages) * PAGE_TOKENS;
    holder.lock = this.cache.insert(holder.lock, holder.tokens, end, holder.table);
    this.#remember(holder, end);
    this.#endReading(holder);
    const { state } = holder;
    for (const saved of state?.saved ?? []) {
      if (saved.depth > end) continue;
      this.cache.checkpoints!.add(holder.lock.node, saved);
      state!.saved = [];
    }
    expect(holder.lock.node.end).toBe(end);
    expect(pathPages(holder.lock.node)).toEqual([...holder.table.subarray(0, end / PAGE_TOKENS)] as PageId[]);
  }

  end(holder: Holder, isHeld = false): void {
    const { tokens, salt, computed, state } = holder;
    this.#endReading(holder);
    const last = { depth: computed, kind: "end" } as const;
    const states = state === null ? [] : [...state.saved, { ...last, slot: state.slot }];
    this.cache.insertLast(holder.lock, tokens, computed, holder.table, states);
    this.#remember(holder, computed);
    this.holders.splice(this.holders.indexOf(holder), 1);
    if (!isHeld) return;
    const lock = this.cache.hold(tokens, computed, sharingOf(tokens, salt));
    const checkpoint = state === null ? null : this.#checkpointOf(tokens, salt);
    if (checkpoint !== null) this.cache.checkpoints!.pin(checkpoint);
    this.held.push({ tokens, salt, lock, checkpoint });
  }

  release(held: Held): void {
    if (held.checkpoint !== null) this.cache.checkpoints!.unpin(held.checkpoint);
    this.cache.release(held.lock);
    this.held.splice(this.held.indexOf(held), 1);
  }

  track(tokens: Int32Array, salt: string): void {
    const waiter: PrefixWaiter = new PrefixWaiter(sharingOf(tokens, salt), tokens, tokens.length - 1, () => {
      this.waiters.set(waiter, waiter.depth);
    });
    this.cache.track(waiter);
    this.waiters.set(waiter, waiter.depth);
  }

  untrack(waiter: PrefixWaiter): void {
    this.cache.untrack(waiter);
    this.waiters.delete(waiter);
  }

  evict(pages: number): void {
    const evictable = this.cache.pagesEvictable;
    const freed = this.cache.evict(pages);
    expect(freed).toBe(Math.min(pages, evictable));
  }

  /** Checks that every match was inserted, and that the pages of each table hold its tokens. */
  check(): void {
    const owned = this.holders.flatMap((holder) => [
      ...holder.table.subarray(holder.lock.node.end / PAGE_TOKENS, holder.pageCount),
    ]) as PageId[];
    const locks = [...this.holders, ...this.held].map(({ lock }) => lock);
    checkCache(this.pool, this.cache, locks, owned);
    this.checkReadable();
    this.#checkStates();
    for (const { tokens, salt, checkpoint } of this.held) {
      const { tokens: found, usable } = this.cache.match(tokens, tokens.length, sharingOf(tokens, salt));
      expect([found, usable]).toEqual([tokens.length, tokens.length]);
      if (checkpoint !== null) expect(checkpoint.depth).toBe(tokens.length);
    }
    for (const [waiter, told] of this.waiters) {
      const match = this.cache.match(waiter.tokens, waiter.limit, waiter.sharing);
      const tracked = { tokens: told, usable: waiter.usable, pagesPinned: this.cache.pagesPinnedBy(waiter) };
      expect({ tracked, depth: waiter.depth }).toEqual({ tracked: match, depth: told });
    }
  }

  /** Checks that each slot has one holder, and that a checkpoint's state is that of its path. */
  #checkStates(): void {
    const { checkpoints } = this.cache;
    if (checkpoints === null) return;
    const states = this.holders.map(({ state }) => state!);
    const owned = states.flatMap(({ slot, saved }) => [slot, ...saved.map((one) => one.slot)]);
    const pins = [
      ...states.flatMap(({ from }) => from ?? []),
      ...this.held.flatMap(({ checkpoint }) => checkpoint ?? []),
    ];
    checkSlots(this.cache, checkpoints, owned, pins);
    for (const { depth, node, slot, savedMs } of checkpoints.kept) {
      expect(this.#states.get(slot)).toBe(pathText(node!).slice(0, depth));
      const above = deepest(node!, depth - 1)?.depth ?? 0;
      expect(savedMs).toBe(computeMs(depth - above, above));
    }
    let isUseful = false;
    for (const node of this.cache.evictionOrder) {
      expect(isUseful && node.kept === 0).toBe(false);
      isUseful ||= node.kept > 0;
    }
  }

  checkReadable(): void {
    for (const { tokens, table, computed } of this.holders) {
      for (let position = 0; position < computed; position++) {
        const page = table[Math.floor(position / PAGE_TOKENS)]! as PageId;
        expect(this.#slots.get(slotName(page, position))).toBe(context(tokens, position + 1));
      }
    }
  }

  #reserve(pages: number): void {
    if (this.pool.pagesFree < pages) this.cache.evict(pages - this.pool.pagesFree);
    assert(this.pool.pagesFree >= pages, "match told the truth about what can be evicted");
  }

  #write(tokens: Int32Array, table: Int32Array, from: number): void {
    for (let position = from; position < tokens.length; position++) {
      const page = table[Math.floor(position / PAGE_TOKENS)]! as PageId;
      this.#slots.set(slotName(page, position), context(tokens, position + 1));
    }
  }

  #remember({ tokens, salt }: Holder, end: number): void {
    for (let length = 1; length <= end; length++)
      this.#prefixes(tokens, length, salt).add(context(tokens, length));
  }
}

function context(tokens: Int32Array, length: number): string {
  return tokens.subarray(0, length).join("");
}

/** The tokens of the path to a node's end. */
function pathText(node: RadixNode): string {
  return (node.parent === null ? "" : pathText(node.parent)) + node.tokens.join("");
}

function slotName(page: PageId, position: number): string {
  return `${page}:${position % PAGE_TOKENS}`;
}

const tokens = fc
  .array(fc.nat({ max: 1 }), { minLength: 1, maxLength: 14, size: "max" })
  .map((list) => Int32Array.from(list));
const salt = fc.constantFrom("", "", "", "other");
const who = fc.nat({ max: 100 });

type Operation =
  | { readonly kind: "begin"; readonly tokens: Int32Array; readonly salt: string }
  | { readonly kind: "publish"; readonly who: number; readonly pages: number }
  | { readonly kind: "end" | "hold" | "release"; readonly who: number }
  | { readonly kind: "follow"; readonly tokens: Int32Array; readonly salt: string }
  | { readonly kind: "unfollow"; readonly who: number }
  | { readonly kind: "evict"; readonly pages: number };

function carryOut(bench: Bench, operation: Operation): void {
  if (operation.kind === "begin") bench.begin(operation.tokens, operation.salt);
  else if (operation.kind === "evict") bench.evict(operation.pages);
  else if (operation.kind === "follow") bench.track(operation.tokens, operation.salt);
  else if (operation.kind === "unfollow") {
    if (bench.waiters.size > 0) bench.untrack([...bench.waiters.keys()][operation.who % bench.waiters.size]!);
  } else if (operation.kind === "release") {
    if (bench.held.length > 0) bench.release(bench.held[operation.who % bench.held.length]!);
  } else if (bench.holders.length > 0) {
    const holder = bench.holders[operation.who % bench.holders.length]!;
    if (operation.kind === "publish") bench.publish(holder, operation.pages);
    else bench.end(holder, operation.kind === "hold");
  }
  bench.check();
}

const begins = fc.record({ kind: fc.constant("begin" as const), tokens, salt });
const publishes = fc.record({ kind: fc.constant("publish" as const), who, pages: fc.nat({ max: 3 }) });
const follows = fc.record({ kind: fc.constant("follow" as const), tokens, salt });
const unfollows = fc.record({ kind: fc.constant("unfollow" as const), who });
const ends = fc.record({ kind: fc.constant("end" as const), who });
const holds = fc.record({ kind: fc.constantFrom("hold" as const, "release" as const), who });
const evicts = fc.record({ kind: fc.constant("evict" as const), pages: fc.integer({ min: 1, max: 4 }) });

function scripts(...kinds: fc.Arbitrary<Operation>[]): fc.Arbitrary<Operation[]> {
  return fc.array(fc.oneof(...kinds), { maxLength: 60, size: "max" });
}

test("without eviction a lookup matches exactly what was inserted under its salt or is public, to the token", () => {
  const rule = fc.property(scripts(begins, publishes, ends), tokens, (script, wanted) => {
    const bench = new Bench(400, null);
    for (const operation of script) carryOut(bench, operation);
    for (const name of ["", "other"]) {
      const found = bench.cache.match(wanted, wanted.length, sharingOf(wanted, name)).tokens;
      expect(found).toBe(bench.oracle(wanted, wanted.length, name));
    }
  });
  fc.assert(rule, runs(200));
});

test("with eviction: free + cached + owned = all, locked pages keep their contents, matches were inserted, and waiters are notified of what a lookup finds", () => {
  const script = scripts(begins, begins, publishes, ends, holds, evicts, follows, unfollows);
  const pages = fc.integer({ min: 5, max: 12 });
  const slots = fc.constantFrom(null, 1, 2, 4, 8);
  const rule = fc.property(pages, slots, script, tokens, (pages, slots, steps, wanted) => {
    const bench = new Bench(pages, slots);
    for (const operation of steps) {
      carryOut(bench, operation);
      const match = bench.cache.match(wanted, wanted.length, sharingOf(wanted, ""));
      expect(match.tokens).toBeLessThanOrEqual(bench.oracle(wanted, wanted.length, ""));
    }
    while (bench.holders.length > 0) bench.end(bench.holders[0]!);
    while (bench.held.length > 0) bench.release(bench.held[0]!);
    bench.evict(pages);
    expect(bench.pool.pagesFree).toBe(pages);
    expect(bench.cache.checkpoints?.pool.freeCount ?? null).toBe(slots);
    bench.check();
    for (const waiter of [...bench.waiters.keys()]) bench.untrack(waiter);
    expect([...bench.cache.nodes()]).toEqual([]);
  });
  fc.assert(rule, runs(400));
});
