import { expect, test } from "bun:test";
import { Fields } from "../fields.ts";
import { messagesOf } from "./messages.ts";

const read = (...messages: readonly object[]) => {
  const ignored = new Set<string>();
  return { messages: messagesOf(new Fields({ messages }), ignored), ignored: [...ignored] };
};
const instead = "[image: this model reads text only]";

test("calls and results keep the ids and names that clients give, and need none", () => {
  const called = { name: "files.read", arguments: { path: "a" } };
  const { messages, ignored } = read(
    { role: "user", content: "Read." },
    { role: "assistant", tool_calls: [{ id: "1", function: called }, { function: { name: "now" } }] },
    { role: "tool", tool_name: "now", content: "noon" },
    { role: "tool", tool_call_id: "1", content: "text" },
  );
  expect<unknown>(messages.slice(1)).toEqual([
    {
      role: "assistant",
      content: "",
      tool_calls: [
        { id: "1", type: "function", function: called },
        { type: "function", function: { name: "now", arguments: {} } },
      ],
    },
    { role: "tool", content: "noon", name: "now" },
    { role: "tool", content: "text", tool_call_id: "1" },
  ]);
  expect(ignored).toEqual([]);
});

test("images are replaced where they are past, or of results, and refused where they are asked about", () => {
  const shown = { role: "user", content: "What?", images: ["aGk="] };
  const { messages, ignored } = read(
    shown,
    { role: "assistant", content: "", tool_calls: [{ function: { name: "look" } }] },
    { role: "tool", images: ["aGk=", "aGk="] },
  );
  expect(messages.map(({ content }) => content)).toEqual([`What?\n${instead}`, "", `${instead}\n${instead}`]);
  expect(ignored).toEqual(["messages.images"]);
  expect(() => read(shown)).toThrow(
    "messages[0].images: this model reads text only, but 1 images were given",
  );
});
