import type { Value } from "./values.ts";

/**
 * Variables of one body, with its enclosing scope. Setting a variable stays inside, reading looks outwards.
 */
export class Scope {
  readonly #variables = new Map<string, Value>();
  readonly #outer: Scope | null;

  constructor(outer: Scope | null) {
    this.#outer = outer;
  }

  set(name: string, value: Value): void {
    this.#variables.set(name, value);
  }

  get(name: string): Value | undefined {
    for (let scope: Scope | null = this; scope !== null; scope = scope.#outer) {
      const value = scope.#variables.get(name);
      if (value !== undefined) return value;
    }
    return undefined;
  }
}
