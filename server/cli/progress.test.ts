import { expect, test } from "bun:test";
import { progressLine, showLoading } from "./progress.ts";

/** Stream that records writes; the line is drawn at most every 50 ms on a terminal, elsewhere after 1 s and then every 5 s. */
function written(isTTY: boolean, beginMs = 0) {
  const texts: string[] = [];
  const stream = { isTTY, write: (text: string) => texts.push(text) > 0 };
  let nowMs = beginMs;
  const line = progressLine(stream, () => nowMs);
  const at = (ms: number): void => {
    nowMs = beginMs + ms;
  };
  return { texts, line, at };
}

test("a terminal gets one line that is drawn over, with what is done with the bytes", () => {
  const { texts, line, at } = written(true);
  const show = showLoading(line);
  show({ stage: "reading", bytesDone: 2 ** 20, bytesTotal: 2 ** 22 });
  at(60);
  show({ stage: "reading", bytesDone: 2 ** 21, bytesTotal: 2 ** 22 });
  at(70);
  show({ stage: "reading", bytesDone: 2 ** 22, bytesTotal: 2 ** 22 });
  at(120);
  show({ stage: "loading", bytesDone: 2 ** 22, bytesTotal: 2 ** 22 });
  at(180);
  show({ stage: "keeping", bytesDone: 2 ** 20, bytesTotal: 2 ** 22 });
  line.clear();
  const bar = (full: number): string => "█".repeat(full) + "░".repeat(24 - full);
  expect(texts).toEqual([
    `\r\x1b[K${bar(12)} reading packed weights: 2.0 MiB of 4.0 MiB`,
    `\r\x1b[K${bar(24)} loading 4.0 MiB of 4.0 MiB`,
    `\r\x1b[K${bar(6)} keeping packed weights: 1.0 MiB of 4.0 MiB`,
    "\r\x1b[K",
  ]);
});

test("elsewhere what takes seconds has a line after one second and then now and then, and the rest none", () => {
  const { texts, line, at } = written(false, 1000);
  const show = showLoading(line);
  for (let ms = 0; ms <= 11_000; ms += 500) {
    at(ms);
    show({ stage: "keeping", bytesDone: ms * 2 ** 20, bytesTotal: 11_000 * 2 ** 20 });
  }
  line.clear();
  expect(texts).toEqual([
    "keeping packed weights: 1000 MiB of 10.7 GiB\n",
    "keeping packed weights: 5.9 GiB of 10.7 GiB\n",
    "keeping packed weights: 10.7 GiB of 10.7 GiB\n",
  ]);
});
