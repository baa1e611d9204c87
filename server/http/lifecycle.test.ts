import { expect, test } from "bun:test";
import type { ApiError } from "./errors.ts";
import { Lifecycle } from "./lifecycle.ts";

function refusalOf(lifecycle: Lifecycle): string | null {
  try {
    lifecycle.expectReady();
    return null;
  } catch (error) {
    expect((error as ApiError).status).toBe(503);
    return (error as ApiError).detail.apiCode!;
  }
}

test("work is refused until the model is loaded, and for good once an engine is lost", () => {
  const lifecycle = new Lifecycle("loading");
  expect(refusalOf(lifecycle)).toBe("loading");
  lifecycle.becomeReady();
  expect(refusalOf(lifecycle)).toBeNull();
  lifecycle.becomeLost("the device is gone");
  lifecycle.becomeReady();
  expect(refusalOf(lifecycle)).toBe("engine_lost");
});

test("draining waits for what runs and takes nothing new", async () => {
  const lifecycle = new Lifecycle();
  const done = [lifecycle.track({ cut: () => {} }), lifecycle.track({ cut: () => {} })];
  const drained = lifecycle.drain(10_000);
  expect(refusalOf(lifecycle)).toBe("draining");
  for (const end of done) end();
  expect(await drained).toBe(0);
  expect(lifecycle.active).toBe(0);
});

test("what takes too long is cut, with the reason, and counted", async () => {
  const lifecycle = new Lifecycle();
  const reasons: ApiError[] = [];
  const start = () => {
    const end = lifecycle.track({
      cut(error) {
        reasons.push(error);
        end();
      },
    });
  };
  start();
  start();
  expect(await lifecycle.drain(1)).toBe(2);
  expect(reasons.map((error) => error.detail.apiCode)).toEqual(["draining", "draining"]);
});

test("draining an idle server is done at once", async () => {
  expect(await new Lifecycle().drain(10_000)).toBe(0);
});
