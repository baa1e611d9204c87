import { expect, test } from "bun:test";
import type { TokenEntry } from "../../answer/events.ts";
import { completionLogprobs } from "./logprobs.ts";

test("alternatives of a completion come likeliest first, and once for each text", () => {
  const text = (token: number, of: string, logprob: number) => ({
    ...{ token, text: of, logprob },
    bytes: new TextEncoder().encode(of),
  });
  const entry: TokenEntry = {
    ...text(3, "b", -1.5),
    textOffset: 0,
    top: [text(1, "a", -0.5), text(2, "c", -1), text(3, "b", -1.5), text(4, "a", -3)],
  };
  const [top] = completionLogprobs([entry], false).top_logprobs.toJSON();
  expect(Object.entries(top as object)).toEqual([
    ["a", -0.5],
    ["c", -1],
    ["b", -1.5],
  ]);
});
