import { expect, test } from "bun:test";
import { type Configuration, compared, measureRounds, median, type Round } from "./rounds.ts";

test("a median is the value in the middle, by size and not by place or as text", () => {
  const values = [100, 3, 9, 1000, 20];
  expect(median(values)).toBe(20);
  expect(values).toEqual([100, 3, 9, 1000, 20]);
  expect(() => median([1, 2])).toThrow("even number");
});

function rounds(ours: readonly number[], ...llama: readonly (readonly number[])[]): Round[] {
  return ours.map((own, round) => ({
    readBytes: 40e9,
    ours: own,
    llama: llama.map((rates) => rates[round]!),
  }));
}

test("of configurations the one with the best median counts, not the one with the best round or the best mean", () => {
  const { llama, llamaWith } = compared(rounds([1, 1, 1], [10, 40, 10], [12, 12, 12], [2, 11, 30]), [
    "a",
    "b",
    "c",
  ]);
  expect([llama, llamaWith]).toEqual([12, "b"]);
});

test("the ratio is one of medians, the spread is of rounds, each beside its own", () => {
  // Sorted by size, 5 / 10, 12 / 12 and 24 / 20 would be 0.5 to 1.2; the worst over the best would be 0.25.
  const of = compared(rounds([24, 5, 12], [10, 20, 12], [9, 9, 9]), ["a", "b"]);
  expect(of).toEqual({ ours: 12, llama: 12, llamaWith: "a", spread: [0.25, 2.4] });
});

test("the spread is beside the configuration that counts, also where another one was faster in a round", () => {
  const { llamaWith, spread } = compared(rounds([10, 10, 10], [50, 4, 4], [8, 8, 16]), ["a", "b"]);
  expect([llamaWith, spread]).toEqual(["b", [0.625, 1.25]]);
});

test("without llama.cpp there is nothing to compare", () => {
  const alone = { ours: 2, llama: null, llamaWith: "", spread: null };
  expect(compared(rounds([1, 9, 2]), [])).toEqual(alone);
});

test("every other round runs backwards, and each rate is kept where it belongs", async () => {
  const order: string[] = [];
  const next = (name: string): number => order.push(name);
  const llama = (name: string): Configuration => ({ name, measure: async () => next(name) });
  const measured = await measureRounds(
    3,
    async () => next("read"),
    () => next("ours"),
    [llama("a"), llama("b")],
  );
  expect(order.join(" ")).toBe("read ours a b b a ours read read ours a b");
  expect(measured).toEqual([
    { readBytes: 1, ours: 2, llama: [3, 4] },
    { readBytes: 8, ours: 7, llama: [6, 5] },
    { readBytes: 9, ours: 10, llama: [11, 12] },
  ]);
});
