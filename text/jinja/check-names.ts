import { isFilterName, isTestName } from "./by-name.ts";
import { fail } from "./errors.ts";
import type { Body } from "./syntax.ts";

/**
 * Throws for filters and tests that do not exist. As in Python, one that only some inputs reach fails when it
 * is reached.
 */
export function checkNames(body: Body): void {
  visit(body, false);
}

/**
 * Kinds of nodes below which a name is resolved late: under `if`, up to the next tag with a scope of its own.
 */
const soft = new Set(["if", "conditional"]);
const hard = new Set(["for", "macro", "call block", "filter block", "set block", "with", "scope"]);

function visit(syntax: unknown, isSoft: boolean): void {
  if (Array.isArray(syntax)) {
    for (const item of syntax) visit(item, isSoft);
    return;
  }
  if (typeof syntax !== "object" || syntax === null || syntax instanceof Set) return;
  const node = syntax as Readonly<Record<string, unknown>>;
  const kind = node.kind as string;
  if (!isSoft && kind === "filter" && !isFilterName(node.name as string))
    fail("TemplateAssertionError", `No filter named '${node.name}'.`);
  if (!isSoft && kind === "test" && !isTestName(node.name as string))
    fail("TemplateAssertionError", `No test named '${node.name}'.`);
  const inside = soft.has(kind) || (isSoft && !hard.has(kind));
  for (const value of Object.values(node)) visit(value, inside);
}

/** All names that a piece of syntax reads. */
export function namesIn(syntax: unknown, into: Set<string> = new Set()): Set<string> {
  if (Array.isArray(syntax)) for (const item of syntax) namesIn(item, into);
  else if (typeof syntax === "object" && syntax !== null && !(syntax instanceof Set)) {
    const node = syntax as Readonly<Record<string, unknown>>;
    if (node.kind === "name") into.add(node.name as string);
    for (const value of Object.values(node)) namesIn(value, into);
  }
  return into;
}

/** Names of variables that a template takes from its context: it reads them before it sets them. */
export function argumentsIn(body: Body): ReadonlySet<string> {
  const taken = new Set<string>();
  const made = new Set<string>();
  const look = (syntax: unknown): void => {
    if (Array.isArray(syntax)) {
      for (const item of syntax) look(item);
      return;
    }
    if (typeof syntax !== "object" || syntax === null || syntax instanceof Set) return;
    const { target, ...node } = syntax as Readonly<Record<string, unknown>>;
    if (node.kind === "name" && !made.has(node.name as string)) taken.add(node.name as string);
    look(Object.values(node));
    for (const name of namesIn(target)) made.add(name);
  };
  look(body);
  return taken;
}
