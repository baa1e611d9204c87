import { expect, test } from "bun:test";
import { Scrape } from "./scrape.ts";

test("all who ask within a second are given one text, and one is made at a time", async () => {
  let nowMs = 0;
  const making: ((text: string) => void)[] = [];
  const scrape = new Scrape(
    () => new Promise((resolve) => making.push(resolve)),
    undefined,
    () => nowMs,
  );
  const first = [scrape.text(), scrape.text()];
  nowMs = 5000;
  first.push(scrape.text());
  expect(making.length).toBe(1);
  making[0]!("first");
  expect(await Promise.all(first)).toEqual(["first", "first", "first"]);

  nowMs = 5999;
  expect(await scrape.text()).toBe("first");
  nowMs = 6000;
  const second = scrape.text();
  expect(making.length).toBe(2);
  making[1]!("second");
  expect(await second).toBe("second");
});

test("after a text that could not be made another is tried a second later", async () => {
  let nowMs = 0;
  let tries = 0;
  const scrape = new Scrape(
    () => (++tries === 1 ? Promise.reject(new Error("no")) : Promise.resolve("text")),
    undefined,
    () => nowMs,
  );
  expect(scrape.text()).rejects.toThrow("no");
  await scrape.text().catch(() => {});
  nowMs = 1000;
  expect(await scrape.text()).toBe("text");
});
