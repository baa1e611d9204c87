import type { Budget } from "./budget.ts";

/** Context of one rendering: its budget, date and stand-ins. */
export class Runtime {
  readonly budget: Budget;
  readonly now: Date;
  readonly #standIns: ReadonlyMap<string, string>;
  readonly #standInPattern: RegExp | null;

  /**
   * `standIns`: characters in the given values that represent others (text/control-text.ts). Comparisons and
   * searches see the represented characters; slices and joins keep the stand-ins.
   */
  constructor(budget: Budget, now: Date, standIns: ReadonlyMap<string, string>) {
    this.budget = budget;
    this.now = now;
    this.#standIns = standIns;
    this.#standInPattern = standIns.size === 0 ? null : new RegExp(`[${[...standIns.keys()].join("")}]`, "g");
  }

  /** The text as the client wrote it, with the same number of UTF-16 units. */
  plain(text: string): string {
    this.read(text);
    if (this.#standInPattern === null) return text;
    return text.replace(this.#standInPattern, (unit) => this.#standIns.get(unit)!);
  }

  /** Charges a search through a text. */
  read(text: string): void {
    this.budget.spend(text.length >> 10);
  }

  /** Charges and returns a new text. */
  made(text: string): string {
    this.budget.text(text.length);
    return text;
  }
}
