/** Names of conversations in the bodies and headers of clients. */
import { describe, expect, test } from "bun:test";
import { Fields } from "./fields.ts";
import { namesIn, namesWith, sessionHeaderOf } from "./session-names.ts";

type Body = Readonly<Record<string, unknown>>;

const cases: readonly (readonly [
  about: string,
  body: Body,
  session: string | null,
  person: string | null,
])[] = [
  ["OpenAI's fields", { prompt_cache_key: "talk", safety_identifier: "ann" }, "talk", "ann"],
  ["OpenAI's older field", { user: "ann" }, null, "ann"],
  ["vLLM's field before OpenAI's", { session_id: "one", prompt_cache_key: "two" }, "one", null],
  ["a person", { metadata: { user_id: "ann" } }, null, "ann"],
  ["Claude Code", { metadata: { user_id: "user_1f_account__session_22-33" } }, "22-33", "user_1f_account_"],
  [
    "newer Claude Code",
    { metadata: { user_id: '{"device_id":"1f","session_id":"22-33"}' } },
    "22-33",
    '{"device_id":"1f"}',
  ],
  ["an id that only looks like JSON", { metadata: { user_id: "{ann" } }, null, "{ann"],
  ["a long name, cut", { session_id: "x".repeat(300) }, "x".repeat(256), null],
];

describe("a body's names", () => {
  test.each(cases)("of %s are read, and are not named as ignored", (_, body, session, person) => {
    const fields = new Fields(body);
    expect(namesIn(fields)).toEqual({ names: { session, person } });
    const [counted] = ["session_id", "prompt_cache_key"].filter((name) => fields.has(name));
    expect(fields.unread().filter((name) => name === counted)).toEqual([]);
  });

  test("are absent where there are none, or no texts; and other metadata stays unread", () => {
    expect(namesIn(new Fields({ user: 5, session_id: "", metadata: "ann" }))).toEqual({});
    const fields = new Fields({ metadata: { user_id: "ann", team: "red" } });
    expect([namesIn(fields), fields.unread()]).toEqual([
      { names: { session: null, person: "ann" } },
      ["metadata"],
    ]);
  });
});

test("a header's name comes before the body's, whose person stays", () => {
  const headers = new Headers({ session_id: "codex", "x-session-id": " any " });
  expect(sessionHeaderOf(headers)).toBe("any");
  expect(sessionHeaderOf(new Headers())).toBeNull();
  expect(namesWith("any", { session: "body", person: "ann" })).toEqual({ session: "any", person: "ann" });
  expect(namesWith(null)).toEqual({ session: null, person: null });
});
