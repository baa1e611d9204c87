import { Database } from "bun:sqlite";
import { afterAll, expect, spyOn, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ApiError } from "../http/errors.ts";
import { UsageLedger } from "./ledger.ts";
import type { UsageEntry } from "./use.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-ledger-"));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

const DAY_MS = 86_400_000;
const entry: UsageEntry = {
  ...{ outcome: "answered", promptTokens: 100, cachedTokens: 40, completionTokens: 10, deviceMs: 2.5 },
};

function refusalOf(act: () => void): ApiError | null {
  try {
    act();
    return null;
  } catch (error) {
    return error as ApiError;
  }
}

test("use is summed by key and day, and is there after a restart", () => {
  const path = join(scratch, "usage.sqlite");
  let nowMs = 20_000 * DAY_MS + 5;
  const open = (): UsageLedger => new UsageLedger(path, [], null, () => nowMs);
  const first = open();
  first.charge("a", entry);
  first.charge("a", { ...entry, outcome: "failed" });
  first.charge("b", entry);
  first.close();
  const second = open();
  second.charge("a", entry);
  nowMs += DAY_MS;
  second.charge("a", { ...entry, outcome: "cancelled" });
  const counts = { promptTokens: 300, cachedTokens: 120, completionTokens: 30, deviceMs: 7.5 };
  const once = { promptTokens: 100, cachedTokens: 40, completionTokens: 10, deviceMs: 2.5 };
  expect(second.rows("a", 7)).toEqual([
    { tenant: "a", day: 20_000, answered: 2, failed: 1, cancelled: 0, ...counts },
    { tenant: "a", day: 20_001, answered: 0, failed: 0, cancelled: 1, ...once },
  ]);
  expect(second.rows(null, 7).map(({ tenant }) => tenant)).toEqual(["a", "b", "a"]);
  expect(second.rows("a", 1).map(({ day }) => day)).toEqual([20_001]);
  second.close();
});

test("a quota counts computed and drawn tokens, refuses with the time of its end, and begins anew", () => {
  let nowMs = 20_000 * DAY_MS + DAY_MS - 90_000;
  const ledger = new UsageLedger(null, [{ tenant: "a", tokensPerDay: 100 }], null, () => nowMs);
  ledger.charge("a", entry);
  expect(refusalOf(() => ledger.expectWithin("a"))).toBeNull();
  ledger.charge("a", entry);
  const refusal = refusalOf(() => ledger.expectWithin("a"))!;
  expect(refusal.status).toBe(429);
  expect(refusal.detail.retryAfterSeconds).toBe(90);
  expect(refusal.message).toBe(
    "this key has used 140 tokens today, and its quota is 100 a day; it begins anew at 2024-10-05T00:00Z",
  );
  expect(refusalOf(() => ledger.expectWithin("b"))).toBeNull();
  nowMs += 90_000;
  expect(refusalOf(() => ledger.expectWithin("a"))).toBeNull();
  ledger.close();
});

test("a full disk is logged once, and use is kept when it takes writes again", () => {
  const said = spyOn(console, "error").mockImplementation(() => {});
  const writes = spyOn(Database.prototype, "transaction").mockImplementation((() => () => {
    throw new Error("database or disk is full");
  }) as never);
  const ledger = new UsageLedger(null);
  for (let i = 0; i < 3; i++) {
    ledger.charge("ann", entry);
    ledger.flush();
  }
  writes.mockRestore();
  expect(said.mock.calls).toEqual([
    ["the use of keys is not kept until the disk takes it: Error: database or disk is full"],
  ]);
  expect(ledger.rows("ann", 1)).toMatchObject([{ completionTokens: 30 }]);
  said.mockRestore();
  ledger.close();
});
