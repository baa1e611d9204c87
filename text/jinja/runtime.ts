import type { Budget } from "./budget.ts";

/** What one rendering has to do with the world around the template. */
export class Runtime {
  readonly budget: Budget;
  readonly now: Date;
  readonly #standIns: ReadonlyMap<string, string>;
  readonly #standInPattern: RegExp | null;

  /**
   * `standIns`: characters in the given values that stand for others (text/control-text.ts). Comparing and searching
   * see what they stand for; cutting and joining keep them.
   */
  constructor(budget: Budget, now: Date, standIns: ReadonlyMap<string, string>) {
    this.budget = budget;
    this.now = now;
    this.#standIns = standIns;
    this.#standInPattern = standIns.size === 0 ? null : new RegExp(`[${[...standIns.keys()].join("")}]`, "g");
  }

  /** The text as the client wrote it, in as many UTF-16 units. */
  plain(text: string): string {
    this.read(text);
    if (this.#standInPattern === null) return text;
    return text.replace(this.#standInPattern, (unit) => this.#standIns.get(unit)!);
  }

  /** Counts that a text is looked through. */
  read(text: string): void {
    this.budget.spend(text.length >> 10);
  }

  /** The text, counted. */
  made(text: string): string {
    this.budget.text(text.length);
    return text;
  }
}
