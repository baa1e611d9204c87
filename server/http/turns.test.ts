import { expect, test } from "bun:test";
import { inTurn } from "./turns.ts";

/**
 * Turn of the event loop in which each of `count` pieces of work begins; all are submitted in one turn, each
 * by a callback.
 */
async function turnsOf(count: number, work: () => Promise<void> | void): Promise<readonly number[]> {
  let turn = 0;
  let isCounting = true;
  const next = (): void => {
    turn++;
    if (isCounting) setImmediate(next);
  };
  setImmediate(next);
  const began: number[] = [];
  await new Promise<void>((resolve) => {
    for (let i = 0; i < count; i++) {
      const piece = async (): Promise<void> => {
        began.push(turn);
        await work();
        if (began.length === count) resolve();
      };
      setImmediate(() => inTurn(piece));
    }
  });
  isCounting = false;
  return began;
}

function computeFor(ms: number): void {
  const endMs = performance.now() + ms;
  while (performance.now() < endMs);
}

test("quick work is done many pieces a turn", async () => {
  const began = await turnsOf(200, () => {});
  expect(began.at(-1)).toBeLessThan(100);
});

test("between pieces that take long all else has its turn, also when they compute behind an await", async () => {
  const began = await turnsOf(8, async () => {
    await Promise.resolve();
    computeFor(5);
  });
  expect(new Set(began).size).toBe(8);
});
