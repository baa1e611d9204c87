import { expect, test } from "bun:test";
import type { PullProgress } from "../hub/pull.ts";
import { pullOutput } from "./pull-progress.ts";

const mib = 2 ** 20;
const model = { name: "Tiny/Demo", revision: "main", variant: null };
const file = { path: "model.safetensors", bytes: 100 * mib, hash: { kind: "git", hex: "0" } } as const;
const at = (doneMib: number, receivedMib = doneMib): PullProgress => ({
  doneBytes: doneMib * mib,
  totalBytes: 100 * mib,
  receivedBytes: receivedMib * mib,
  file,
  fileDoneBytes: doneMib * mib,
});

/** Output of a pull of 10 MiB per second whose first 20 MiB are in the cache. */
function written(isTTY: boolean): string[] {
  const texts: string[] = [];
  let nowMs = 0;
  const stream = { isTTY, write: (text: string) => texts.push(text) > 0 };
  const output = pullOutput(stream, () => nowMs);
  output.onSize({ model, commit: "0123456789", bytes: 100 * mib, missingBytes: 80 * mib, cache: "/cache" });
  output.onProgress(at(20, 0));
  for (let done = 21; done <= 100; done += 1) {
    nowMs += 100;
    output.onProgress(at(done, done - 20));
  }
  output.onEnd();
  return texts;
}

test("without a terminal there is a line for each tenth, with rate and time left", () => {
  expect(written(false)).toEqual([
    "Tiny/Demo at 01234567: 100 MiB, of which 80.0 MiB are missing, to be fetched to /cache.\n",
    "20 %: 20.0 MiB of 100 MiB\n",
    ...[30, 40, 50, 60, 70, 80, 90].map(
      (done) => `${done} %: ${done}.0 MiB of 100 MiB, 10.0 MiB/s, ${(100 - done) / 10} s left\n`,
    ),
    "100 %: 100 MiB of 100 MiB\n",
  ]);
});

test("on a terminal there is a bar", () => {
  const texts = written(true);
  expect(texts[50]).toBe("\r\x1b[K█████████████████░░░░░░░ 70.0 MiB of 100 MiB, 10.0 MiB/s, 3 s left");
  expect(texts.at(-1)).toBe("\r\x1b[K");
});
