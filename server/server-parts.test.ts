import { expect, test } from "bun:test";
import { ApiKeys } from "./http/auth.ts";
import { quotaNotes } from "./server-parts.ts";

test("a quota of a key that is not accepted is told without the key", () => {
  const keys = new ApiKeys({ keys: ["first"], file: null, adminKeys: ["operator"] });
  expect(quotaNotes({ quota: ["first=10", "operator=10/day"] }, keys)).toEqual([]);
  expect(quotaNotes({ quota: ["first=10", "frist=10/day"] }, keys)).toEqual([
    "--quota 2 of 2 limits nobody: its key is none of the API keys",
  ]);
});
