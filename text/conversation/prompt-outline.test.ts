import { expect, test } from "bun:test";
import type { ChatMessage } from "./messages.ts";
import { outlineOf, type PromptPart, partAt } from "./prompt-outline.ts";

const messages: readonly ChatMessage[] = [
  { role: "system", content: " RULES é " },
  { role: "user", content: "Look?" },
  {
    role: "assistant",
    content: "",
    tool_calls: [{ id: "1", type: "function", function: { name: "look", arguments: {} } }],
  },
  { role: "tool", content: "R", tool_call_id: "1" },
];
const text = "<system>RULES é<tools>[list]<user>Look?<assistant>call look {}<tool>R<answer>";

/** Message or role of each place, as the template wrote it. */
const at = (parts: readonly PromptPart[], word: string): unknown => {
  const part = partAt(parts, Buffer.byteLength(text.slice(0, text.indexOf(word))));
  return part === null ? null : (part.message ?? part.role);
};

test("a place belongs to the message whose text ends behind it, to tools, or to none", () => {
  const parts = outlineOf(text, messages, true);
  expect(
    ["RULES", "[list]", "Look?", "look {", "R<answer>", "<answer>"].map((word) => at(parts, word)),
  ).toEqual([...[0, "tools", 1, 2, 3, null]]);
  expect(at(outlineOf(text, messages, false), "[list]")).toBe(1);
});

test("a message that the template leaves out has no part, and its neighbours keep theirs", () => {
  const gone = [messages[0]!, { role: "user", content: "GONE" }, ...messages.slice(1)];
  const parts = outlineOf(text, gone, false);
  expect(parts.map(({ message, role }) => [message, role])).toEqual([
    [0, "system"],
    [2, "user"],
    [3, "assistant"],
    [4, "tool"],
  ]);
});

test("a text that was changed ends where its beginning does", () => {
  const long = "x".repeat(200);
  const [part] = outlineOf(`<user>${long.slice(0, 100)}…`, [{ role: "user", content: long }], false);
  expect(part!.endByte).toBeLessThan(100);
  expect(outlineOf("nothing of it", [{ role: "user", content: long }], true)).toEqual([]);
});
