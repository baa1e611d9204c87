import { EvictionOrder, type Span } from "./radix-tree.ts";

/** Port: in which order spans without leases are evicted. A span is added when its last lease ends, and removed when it is leased. */
export interface Eviction {
  /** Pages of spans that are evicted after all others, since readers wait for them. */
  readonly pagesWanted: number;
  /** The span to evict next; null: there is none. */
  readonly first: Span | null;
  /** Whether a span is evicted after all that are not. */
  isWanted(span: Span): boolean;
  /** Adds a span as the most recently used one. */
  add(span: Span): void;
  /** Moves a span of the order before all others. */
  giveUp(span: Span): void;
  /** Removes a span of the order. */
  remove(span: Span): void;
  /** Takes note that a span, in the order or not, has one reader more. */
  followed(span: Span): void;
  /** Takes note that a span, in the order or not, may have fewer readers. */
  unfollowed(span: Span): void;
  /** Takes note that a span, in the order or not, has `pages` fewer pages. */
  shrank(span: Span, pages: number): void;
  /** All spans of the order, the first to be evicted first. */
  [Symbol.iterator](): Iterator<Span>;
}

/** Evicts the least recently used span, and those that readers wait for after all others. */
export class WantedLast implements Eviction {
  readonly #idle = new EvictionOrder();
  readonly #wanted = new EvictionOrder();
  #pagesWanted = 0;

  get pagesWanted(): number {
    return this.#pagesWanted;
  }

  get first(): Span | null {
    return this.#idle.oldest ?? this.#wanted.oldest;
  }

  isWanted({ readers }: Span): boolean {
    return readers > 0;
  }

  add(span: Span): void {
    if (span.readers === 0) {
      this.#idle.append(span);
      return;
    }
    this.#pagesWanted += span.pages.length;
    this.#wanted.append(span);
  }

  giveUp(span: Span): void {
    this.remove(span);
    this.#idle.prepend(span);
  }

  remove(span: Span): void {
    this.shrank(span, span.pages.length);
    span.order?.remove(span);
  }

  /** A reader is going to use it: that counts as a use. */
  followed(span: Span): void {
    if (span.order !== null) this.#addAgain(span);
  }

  unfollowed(span: Span): void {
    if (span.readers === 0 && span.order === this.#wanted) this.#addAgain(span);
  }

  shrank({ order }: Span, pages: number): void {
    if (order === this.#wanted) this.#pagesWanted -= pages;
  }

  *[Symbol.iterator](): Generator<Span> {
    yield* this.#idle;
    yield* this.#wanted;
  }

  #addAgain(span: Span): void {
    this.remove(span);
    this.add(span);
  }
}
