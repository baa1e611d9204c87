import { assert } from "../base/assert.ts";
import type { Cancel, Clock } from "../base/clock.ts";

interface Event {
  readonly atMs: number;
  /** Tie breaker: the order in which events were set. */
  readonly order: number;
  run: (() => void) | null;
}

/**
 * Virtual clock: time stands still while code runs and jumps from event to event. A simulation's history then
 * depends on its inputs alone. A binary heap; setting and running an event costs O(log events).
 */
export class EventClock implements Clock {
  #nowMs = 0;
  #orders = 0;
  /** Binary heap: the parent of i is (i - 1) >> 1, and comes first. */
  readonly #heap: Event[] = [];

  nowMs(): number {
    return this.#nowMs;
  }

  after(delayMs: number, run: () => void): Cancel {
    assert(delayMs >= 0, "time does not go back");
    return this.at(this.#nowMs + delayMs, run);
  }

  /** Schedules `run` at exactly `atMs`, which must not be past. */
  at(atMs: number, run: () => void): Cancel {
    assert(atMs >= this.#nowMs && atMs < Number.POSITIVE_INFINITY, "time does not go back, and has an end");
    const event: Event = { atMs, order: this.#orders, run };
    this.#orders += 1;
    this.#push(event);
    return () => {
      event.run = null;
    };
  }

  /** Advances to the next event and runs it; false if there is none. */
  runNext(): boolean {
    for (;;) {
      const event = this.#pop();
      if (event === null) return false;
      if (event.run === null) continue;
      this.#nowMs = event.atMs;
      event.run();
      return true;
    }
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let index = heap.length;
    heap.push(event);
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (!isBefore(event, heap[parent]!)) break;
      heap[index] = heap[parent]!;
      index = parent;
    }
    heap[index] = event;
  }

  #pop(): Event | null {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined) return null;
    if (heap.length > 0) this.#sink(last);
    return first;
  }

  /** Replaces the first event by `event` and sifts it down. */
  #sink(event: Event): void {
    const heap = this.#heap;
    let index = 0;
    for (;;) {
      let child = 2 * index + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child += 1;
      if (!isBefore(heap[child]!, event)) break;
      heap[index] = heap[child]!;
      index = child;
    }
    heap[index] = event;
  }
}

function isBefore(a: Event, b: Event): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}
