/** Control flow over values: map, reduce, repeat and choose. The server runs all of it. */
import { type Block, bodiesOpen, type Cell, inside, type Piece } from "./graph.ts";
import { Value } from "./value.ts";

/** Several values in one place of a prompt. */
export interface Joined {
  /** @internal */
  readonly pieces: readonly Piece[];
}

/** Joins values with a separator: a list known here, or a list value computed by calls. */
export function join(
  values: readonly (string | Value<unknown>)[] | Value<readonly unknown[]>,
  separator: string,
): Joined {
  if (values instanceof Value) return { pieces: [{ input: values.cell, transforms: [{ join: separator }] }] };
  const pieces = values.flatMap((one, index): Piece[] => {
    const piece: Piece = typeof one === "string" ? { constant: one } : { input: one.cell, transforms: [] };
    return index === 0 || separator === "" ? [piece] : [{ constant: separator }, piece];
  });
  return { pieces };
}

/** Runs `each` for every item of a list, whose length may be unknown until run time (at most 1,024). */
export function map<T>(
  list: Value<readonly unknown[]>,
  each: (item: Value<string>) => Value<T>,
  options: { readonly concurrency?: number } = {},
): Value<T[]> {
  const item = bound("item");
  const result = each(new Value(item, (wire) => wire as string));
  const block = blockOf("map", { map: list.cell }, { item }, [only(result)], options);
  return new Value(block.output, (wire) => (wire as readonly string[]).map((one) => result.read(one)));
}

/** Runs `step` for one item after another; each result is the first argument of the next step. */
export function reduce(
  list: Value<readonly unknown[]>,
  initial: Value<string>,
  step: (soFar: Value<string>, item: Value<string>) => Value<string>,
): Value<string> {
  const item = bound("item");
  const accumulator = bound("so-far");
  const result = step(
    new Value(accumulator, (wire) => wire as string),
    new Value(item, (wire) => wire as string),
  );
  const reads = { reduce: list.cell, initial: initial.cell };
  const block = blockOf("reduce", reads, { item, accumulator }, [only(result)], {});
  return new Value(block.output, (wire) => wire as string);
}

/** Test of a text. `matches` is a pattern in the syntax of the parser `regex`. */
export type Test = { readonly equals: string } | { readonly contains: string } | { readonly matches: string };

/**
 * Runs `step` repeatedly, each time on the previous result, until a result passes the test or `count` times.
 */
export function repeat(
  initial: Value<string>,
  step: (state: Value<string>) => Value<string>,
  { until, count }: { readonly until: Test; readonly count: number },
): Value<string> {
  const state = bound("state");
  const result = step(new Value(state, (wire) => wire as string));
  const block = blockOf("repeat", { repeat: initial.cell }, { state }, [only(result)], { until, count });
  return new Value(block.output, (wire) => wire as string);
}

/**
 * Runs the first case whose test `on` passes, else `otherwise`, and returns its value; fails without
 * `otherwise`. The other cases do not run.
 */
export function choose(
  on: Value<string>,
  cases: readonly (Test & { readonly run: () => Value<string> })[],
  otherwise?: () => Value<string>,
): Value<string> {
  const bodyOf = (make: () => Value<string>, fields: object | null): Block["bodies"][number] => {
    const body = Symbol("body");
    return { body, fields, result: inside(body, make).cell };
  };
  const bodies = cases.map(({ run, ...test }) => bodyOf(run, test));
  if (otherwise !== undefined) bodies.push(bodyOf(otherwise, null));
  const block = blockOf("choose", { choose: on.cell }, {}, bodies, {});
  return new Value(block.output, (wire) => wire as string);
}

/**
 * Body of a block that has only one. Calls that do not depend on its bound values stay outside and run once.
 */
function only({ cell }: Value<unknown>): Block["bodies"][number] {
  return { body: Symbol("body"), fields: {}, result: cell };
}

function bound(label: string): Cell {
  return { label, producer: null, settled: null, running: null };
}

function blockOf(
  kind: Block["kind"],
  reads: Block["reads"],
  binds: Block["binds"],
  bodies: Block["bodies"],
  fields: object,
): Block {
  const output = bound(kind);
  const block: Block = { kind, inside: bodiesOpen(), reads, binds, bodies, fields, output };
  output.producer = block;
  return block;
}
