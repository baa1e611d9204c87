/** The worth of checkpoints, which decides their eviction. */

import { expect, test } from "bun:test";
import { GreedyDual, type Valued } from "./checkpoints.ts";

const end = (changes: Partial<Valued> = {}): Valued => ({
  kind: "end",
  reads: 0,
  savedMs: 10,
  usedAt: 0,
  ...changes,
});

test("a checkpoint is worth more the more time it saves, and if used after others were evicted", () => {
  const policy = new GreedyDual();
  expect(policy.worth(end({ savedMs: 20 }))).toBeGreaterThan(policy.worth(end()));
  policy.evicted(policy.worth(end({ savedMs: 30 })));
  const usedAt = policy.used("end", null);
  expect(usedAt).toBe(policy.now);
  expect(policy.worth(end({ usedAt }))).toBeGreaterThan(policy.worth(end({ savedMs: 20 })));
});

test("kinds that are read are worth more, and read ones more if their kind is read again", () => {
  const policy = new GreedyDual();
  for (let i = 0; i < 10; i++) {
    for (const kind of ["end", "branch", "prompt"] as const) policy.used(kind, null);
    policy.used("end", 0);
    for (let reads = 0; reads < 5; reads++) policy.used("branch", reads);
  }
  const worth = (changes: Partial<Valued>): number => policy.worth(end(changes));
  expect(worth({})).toBeGreaterThan(5 * worth({ kind: "prompt" }));
  expect(worth({ kind: "branch", reads: 1 })).toBeGreaterThan(5 * worth({ reads: 1 }));
});

test("later checkpoints of a kind weigh more than earlier ones", () => {
  const policy = new GreedyDual();
  for (let i = 0; i < 1000; i++) policy.used("end", null);
  const unread = policy.worth(end());
  for (let i = 0; i < 200; i++) {
    policy.used("end", null);
    policy.used("end", 0);
  }
  expect(policy.worth(end())).toBeGreaterThan(20 * unread);
});

test("a prompt that computes much leaves checkpoints before its end", () => {
  const policy = new GreedyDual();
  const distances = (computed: number): number[] =>
    policy
      .positions({ length: 10_001, computed, matched: 0, publicTokens: 0 })
      .filter(([, kind]) => kind === "distant")
      .map(([position]) => 10_000 - position);
  expect(distances(0)).toEqual([64, 256, 1024]);
  expect(distances(9000)).toEqual([64]);
  expect(distances(9600)).toEqual([]);
});
