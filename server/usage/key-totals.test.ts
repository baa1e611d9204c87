import { expect, test } from "bun:test";
import { KeyTotals } from "./key-totals.ts";
import type { UsageEntry } from "./use.ts";

const entry: UsageEntry = {
  ...{ outcome: "answered", promptTokens: 100, cachedTokens: 40, completionTokens: 10, deviceMs: 2.5 },
};
const once = {
  ...{ answered: 1, failed: 0, cancelled: 0 },
  ...{ promptTokens: 100, cachedTokens: 40, completionTokens: 10, deviceMs: 2.5 },
};
const twice = {
  ...{ answered: 1, failed: 1, cancelled: 0 },
  ...{ promptTokens: 200, cachedTokens: 80, completionTokens: 20, deviceMs: 5 },
};

test("the first keys count each under its name or the start of its digest, the others together", () => {
  const names: Record<string, string> = { a: "blue" };
  const totals = new KeyTotals(3, (tenant) => names[tenant] ?? null);
  for (const tenant of ["a", "0123456789abcdef0123", "", "d", "e"]) totals.charge(tenant, entry);
  totals.charge("a", { ...entry, outcome: "failed" });
  expect(Object.fromEntries(totals.byLabel())).toEqual({
    blue: twice,
    "0123456789abcdef": once,
    none: once,
    other: { ...twice, answered: 2, failed: 0 },
  });
});

test("keys of one name are one", () => {
  const totals = new KeyTotals(2, () => "blue");
  totals.charge("a", entry);
  totals.charge("b", { ...entry, outcome: "failed" });
  expect(Object.fromEntries(totals.byLabel())).toEqual({ blue: twice });
});
