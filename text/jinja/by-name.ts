/** Filters and tests by name, and the filters with such a name as an argument. */
import { fail } from "./errors.ts";
import { filters } from "./filters.ts";
import { type IsTest, isTests } from "./is-tests.ts";
import { asMarkup, bare } from "./markup.ts";
import type { Runtime } from "./runtime.ts";
import { higherFilters } from "./sequence-filters.ts";
import type { Filter } from "./signature.ts";
import { type Arguments, Markup, type Value } from "./values.ts";

const byName = {
  filter: applyFilter,
  test: applyTest,
} satisfies Parameters<typeof higherFilters>[0];

for (const [name, filter] of higherFilters(byName)) filters.set(name, filter);

/** Filters that return markup for markup. */
const keepsMarkup = new Set([
  ..."upper lower capitalize trim center string indent truncate reverse".split(" "),
]);
/** Filters that return their input. */
const returnsInput = new Set(["default", "d", "safe", "e", "escape"]);

export function applyFilter(rt: Runtime, name: Value, value: Value, args: Arguments): Value {
  const filter =
    find<Filter>(filters, name) ?? fail("TemplateRuntimeError", `No filter named '${String(name)}'.`);
  if (typeof value === "string") rt.read(value);
  if (!(value instanceof Markup)) return filter(rt, value, args);
  if (returnsInput.has(name as string)) return value;
  const result = filter(rt, value.text, args);
  return keepsMarkup.has(name as string) ? asMarkup(result) : result;
}

export function applyTest(rt: Runtime, name: Value, value: Value, args: Arguments): boolean {
  const isTest =
    find<IsTest>(isTests, name) ?? fail("TemplateRuntimeError", `No test named '${String(name)}'.`);
  return name === "escaped" ? value instanceof Markup : isTest(rt, bare(value), args);
}

export function isFilterName(name: string): boolean {
  return filters.has(name);
}

export function isTestName(name: string): boolean {
  return isTests.has(name);
}

function find<Found>(table: ReadonlyMap<string, Found>, name: Value): Found | undefined {
  return typeof name === "string" ? table.get(name) : undefined;
}
