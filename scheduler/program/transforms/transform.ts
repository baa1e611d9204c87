/**
 * Transforms of a value between calls (Parrot, §5.1): a list of named steps, each pure and bounded in time
 * and size. A failed step has an error sentence and fails the variable.
 */
import type { Transform, Transformed, TransformStep } from "../spec.ts";
import { transforms } from "./table.ts";
import { checked, failed, type TextTools } from "./value.ts";

/** Step: a row of the table with its checked argument. */
export interface Step extends TransformStep {
  /** Argument; null: none. */
  readonly argument: unknown;
}

/** Parses a step of a client: `"strip"` or `{ "split": "," }`. Returns an error sentence if it is invalid. */
export function parseStep(given: unknown): Step | { readonly problem: string } {
  const { kind, argument } = namedArgument(given);
  const row = kind !== null && Object.hasOwn(transforms, kind) ? transforms[kind] : undefined;
  if (kind === null || row === undefined) {
    return {
      problem: `must be one of ${Object.keys(transforms).join(", ")}, or an object with one of these keys`,
    };
  }
  const problem = row.problem(argument);
  return problem === null ? { kind, argument } : { problem: `${kind}: ${problem}` };
}

function namedArgument(given: unknown): { readonly kind: string | null; readonly argument: unknown } {
  if (typeof given === "string") return { kind: given, argument: null };
  if (typeof given !== "object" || given === null) return { kind: null, argument: null };
  const [[kind, argument] = [null, null], ...others] = Object.entries(given);
  return { kind: others.length === 0 ? kind : null, argument };
}

/** Returns a function that applies steps of the table in order; `default` replaces an earlier failure. */
export function transformWith(tools: TextTools): Transform {
  return (value, steps) => {
    let result = checked(value);
    for (const { kind, argument } of steps as readonly Step[]) {
      const row = transforms[kind]!;
      if (result.kind === "failed" && !row.mends) continue;
      result = named(kind, row.apply(result, argument, tools));
    }
    return result;
  };
}

function named(kind: string, result: Transformed): Transformed {
  const inside = result.kind === "value" ? checked(result.value) : result;
  return inside.kind === "value" ? inside : failed(`${kind}: ${inside.message}`);
}
