import { afterAll, beforeAll, expect, test } from "bun:test";
import { ConstraintError } from "../../grammar/error.ts";
import { ConstraintCompiler } from "./compiler.ts";

let compiler: ConstraintCompiler;
beforeAll(() => {
  compiler = new ConstraintCompiler(new URL("./worker.ts", import.meta.url).href);
});
afterAll(() => compiler.close());

const compile = (texts: readonly string[]) => compiler.compile({ kind: "choice", texts });

test("the last 256 constraints are remembered, and no more, whatever number of them comes", async () => {
  for (let number = 0; number < 600; number++) {
    await compile([`a${number}`]);
    expect(compiler.kept.entries).toBe(Math.min(number + 1, 256));
  }
  const last = await compile(["a599"]);
  expect(await compile(["a599"])).toBe(last);
  const first = await compile(["a0"]);
  expect(await compile(["a0"])).toBe(first);
  expect(compiler.kept.entries).toBe(256);
});

test("large ones count for what they are: fewer of them are remembered", async () => {
  const bytesMax = 2 ** 20;
  const small = new ConstraintCompiler(new URL("./worker.ts", import.meta.url).href, 2000, bytesMax);
  const large = (number: number): string[] =>
    Array.from({ length: 200 }, (_, index) => `${number}-${index * 7919}`);
  for (let number = 0; number < 60; number++) {
    await small.compile({ kind: "choice", texts: large(number) });
    expect(small.kept.bytes).toBeLessThanOrEqual(bytesMax);
  }
  expect(small.kept.entries).toBeLessThan(60);
  expect(small.kept.bytes).toBeGreaterThan(bytesMax / 2);
  small.close();
});

test("one that is not done in time is refused, and takes its thread with it; others are compiled by the next", async () => {
  const url = new URL("../../tests/support/compiler-thread.ts", import.meta.url).href;
  const silent = new ConstraintCompiler(url, 2000);
  const refusal = silent.compile({ kind: "choice", texts: ["never"] }).catch((error: unknown) => error);
  const behind = silent.compile({ kind: "choice", texts: ["soon"] });
  expect(await refusal).toEqual(new ConstraintError("it takes longer than 2000 ms to compile"));
  expect((await behind).ignored).toEqual([]);
  silent.close();
});

test("one that comes when too many wait is refused, and taken when it comes again", async () => {
  const texts = Array.from({ length: 65 }, (_, number) => [`crowd ${number}`]);
  const crowd = texts.map((one) => compile(one).catch((error: unknown) => error));
  expect((await Promise.all(crowd))[64]).toEqual(
    new ConstraintError("64 others wait to be compiled; try again"),
  );
  expect((await compile(texts[64]!)).ignored).toEqual([]);
});

test("gives way where it is told to", async () => {
  const telling = new ConstraintCompiler(
    new URL("../../tests/support/compiler-thread.ts", import.meta.url).href,
  );
  const told = (texts: readonly string[], isPaced?: boolean): Promise<unknown> =>
    telling.compile({ kind: "choice", texts }, isPaced).catch((error: Error) => error.message);
  expect(await Promise.all([told(["told"]), told(["told", "x"], true), told(["told", "y"], false)])).toEqual([
    "at once",
    "at a pace",
    "at once",
  ]);
  telling.close();
});
