/** Branches of the page's conversations, and the messages that they become. */
import { expect, test } from "bun:test";
import {
  type Conversation,
  messagesOf,
  openCalls,
  pathTo,
  siblings,
  type Turn,
  tipOf,
  without,
} from "../web/chat/conversation.ts";
import { mathSyntax } from "../web/chat/math-syntax.ts";
import { noSettings, requestFields } from "../web/chat/settings.ts";

const turn = (id: string, parent: string | null, role: Turn["role"], more: Partial<Turn> = {}): Turn => ({
  id,
  parent,
  role,
  content: id,
  ...more,
});
const call = { id: "c1", name: "add", arguments: "{}" };
const turns = [
  turn("q1", null, "user"),
  turn("a1", "q1", "assistant"),
  turn("q2", "a1", "user"),
  turn("a1'", "q1", "assistant", { error: "gone" }),
  turn("q3", "a1'", "user"),
  turn("a3", "q3", "assistant", { content: "", calls: [call] }),
];
const idsOf = (some: readonly Turn[]) => some.map(({ id }) => id);

test("a branch is the path to its head, and its alternatives have the same parent", () => {
  expect(idsOf(pathTo(turns, "a3"))).toEqual(["q1", "a1'", "q3", "a3"]);
  expect(pathTo(turns, null)).toEqual([]);
  expect(idsOf(siblings(turns, turns[1]!))).toEqual(["a1", "a1'"]);
  expect(tipOf(turns, "a1")).toBe("q2");
  expect(tipOf(turns, "q1")).toBe("a3");
  const cycle = [turn("a", "b", "user"), turn("b", "a", "user")];
  expect(idsOf(pathTo(cycle, "a"))).toEqual(["b", "a"]);
});

test("without a turn all after it are gone, and its newest alternative is shown", () => {
  const conversation: Conversation = { id: "x", changedMs: 0, settings: noSettings, turns, head: "a3" };
  const left = without(conversation, "a1'");
  expect([idsOf(left.turns), left.head]).toEqual([["q1", "a1", "q2"], "q2"]);
  expect(without(conversation, "q1")).toMatchObject({ turns: [], head: null });
  expect(without(conversation, "q2").head).toBe("a3");
});

test("messages are those of the branch, without answers that an error cut", () => {
  expect(messagesOf(pathTo(turns, "a3"), " Be brief. ")).toEqual([
    { role: "system", content: "Be brief." },
    { role: "user", content: "q1" },
    { role: "user", content: "q3" },
    {
      role: "assistant",
      content: "",
      tool_calls: [{ id: "c1", type: "function", function: { name: "add", arguments: "{}" } }],
    },
  ]);
});

test("a call is open until it has a result or the user goes on", () => {
  const path = pathTo(turns, "a3");
  expect(openCalls(path)).toEqual([call]);
  expect(openCalls([...path, turn("r", "a3", "tool", { callId: "c1" })])).toEqual([]);
  expect(openCalls([...path, turn("q4", "a3", "user")])).toEqual([]);
});

test("settings that are empty are not sent, and one that is not JSON is a sentence", () => {
  expect(requestFields(noSettings)).toEqual({});
  expect(
    requestFields({
      ...noSettings,
      model: "m",
      numbers: { temperature: "0", top_k: "" },
      stop: "a\n\nb",
      thinking: "off",
      schema: "{}",
      tools: "[]",
    }),
  ).toEqual({
    model: "m",
    temperature: 0,
    stop: ["a", "b"],
    enable_thinking: false,
    response_format: { type: "json_schema", json_schema: { name: "answer", schema: {} } },
    tools: [],
  });
  expect(requestFields({ ...noSettings, thinking: "low" })).toEqual({ reasoning_effort: "low" });
  expect(() => requestFields({ ...noSettings, tools: "[" })).toThrow("The list of tools is not JSON: ");
});

test("formulas are found, and money is none", () => {
  const [block, inline] = mathSyntax.map(({ tokenizer }) => (text: string) => {
    const found = (tokenizer as (text: string) => { readonly text: string } | undefined)(text);
    return found?.text;
  });
  expect(["$x^2$ is", "\\(a\\) b", "$5 and $6", "$ x$", "$x $", "$a$5"].map(inline!)).toEqual([
    "x^2",
    "a",
    undefined,
    undefined,
    undefined,
    undefined,
  ]);
  expect(["$$\nx\n$$\n", "\\[ y \\]", "$$z$$ and more"].map(block!)).toEqual(["x", "y", undefined]);
});
