/** What runs calls as values become known: over lists, by a choice, again and again. All of it happens on the server. */
import { type Block, bodiesOpen, type Cell, inside, type Piece } from "./graph.ts";
import { Value } from "./value.ts";

/** Several values in one place of a prompt. */
export interface Joined {
  /** @internal */
  readonly pieces: readonly Piece[];
}

/** Values one after another with a separator between: of a list that is known here, or of one that calls make. */
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

/** `each` for every item of a list, however many there turn out to be (1,024 at most). */
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

/** `step` for one item of a list after another; each result is the next one's first argument. */
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

/** A question about a text. `matches` is a pattern as `regex` takes it. */
export type Test = { readonly equals: string } | { readonly contains: string } | { readonly matches: string };

/** `step` again and again, each on the result of the one before, until a result passes the test or `count` times. */
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

/** The value of the first case whose test `on` passes; else that of `otherwise`; without one, a failure. Only what is chosen
 *  runs. */
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

/** The body of what has one: calls that read nothing of what it binds stay outside, and run once. */
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
