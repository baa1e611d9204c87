/** Filters and tests by the names that templates call them by, and the filters that take such a name. */
import { fail } from "./errors.ts";
import { type Filter, filters } from "./filters.ts";
import { type IsTest, isTests } from "./is-tests.ts";
import { higherFilters } from "./sequence-filters.ts";
import type { Value } from "./values.ts";

const byName = {
  filter: (rt, name, value, args) => filterNamed(name)(rt, value, args),
  test: (rt, name, value, args) => testNamed(name)(rt, value, args),
} satisfies Parameters<typeof higherFilters>[0];

for (const [name, filter] of higherFilters(byName)) filters.set(name, filter);

export function filterNamed(name: Value): Filter {
  return find(filters, name) ?? fail("TemplateRuntimeError", `No filter named '${String(name)}'.`);
}

export function testNamed(name: Value): IsTest {
  return find(isTests, name) ?? fail("TemplateRuntimeError", `No test named '${String(name)}'.`);
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
