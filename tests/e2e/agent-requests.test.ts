/** Requests of coding agents in mid-session, on every wire format that they use, under a strict template. */
import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { post, startTestServer, type TestServer } from "./server.ts";

let server: TestServer;
let prompt = "";
beforeAll(() => {
  server = startTestServer({
    answers: (text) => {
      prompt = text;
      return ["Done."];
    },
    template: readFileSync(join(import.meta.dir, "../suites/agents/strict.jinja"), "utf8"),
    spec: { contextMax: 2048 },
  });
});
afterEach(() => server.settled());
afterAll(() => server.close());

async function ask(path: string, body: object) {
  const response = await post(server, path, { model: "demo", ...body });
  expect([response.status, response.ok ? "" : await response.text()]).toEqual([200, ""]);
  const [, ...turns] = prompt.replaceAll("<|im_end|>\n", "").split("<|im_start|>");
  const ignored = response.headers.get("x-bunting-ignored")?.split(", ").toSorted() ?? [];
  return { turns: turns.slice(0, -1), ignored };
}

const command = { type: "object", properties: { cmd: { type: "string" } }, required: ["cmd"] };
const png = "iVBORw0KGgo=";
const picture = "[image: this model reads text only]";
const called = (name: string, args: string) =>
  `<tool_call>\n{"name": "${name}", "arguments": ${args}}\n</tool_call>`;
/** Makes the system's turn, with tools of one schema. */
const head = (...offered: readonly string[]) => {
  const parameters =
    '"parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}';
  const lines = offered.map((fields) => `{${fields}, ${parameters}}\n`);
  return `system\nBe brief.\n\nTools:\n<tools>\n${lines.join("")}</tools>`;
};

test("Responses: a picture in a result, a call that was cut, developers' messages, a search on offer", async () => {
  const message = (role: string, text: string) => ({
    type: "message",
    role,
    content: [{ type: "input_text", text }],
  });
  const input = [
    message("developer", "Be brief."),
    message("user", "<cwd>/work</cwd>"),
    message("user", "Look."),
    { type: "function_call", call_id: "call_1", name: "view_image", arguments: '{"path":"a.png"}' },
    {
      type: "function_call_output",
      call_id: "call_1",
      output: [{ type: "input_image", image_url: `data:image/png;base64,${png}` }],
    },
    { type: "message", role: "assistant", content: [{ type: "output_text", text: "I write." }] },
    { type: "function_call", call_id: "call_2", name: "exec", arguments: '{"cmd":"printf wor' },
    { type: "function_call_output", call_id: "call_2", output: "aborted" },
    message("developer", "The folder is another now."),
    message("user", "Go on."),
  ];
  const exec = { type: "function", name: "exec", parameters: command, strict: false };
  const { turns, ignored } = await ask("/v1/responses", {
    input,
    tools: [
      exec,
      { type: "namespace", name: "agents", description: "Agents", tools: [{ ...exec, name: "spawn" }] },
      { type: "web_search", external_web_access: true },
    ],
    tool_choice: "auto",
    parallel_tool_calls: true,
    reasoning: { summary: "auto" },
    store: false,
    include: ["reasoning.encrypted_content"],
    prompt_cache_key: "session",
    client_metadata: { session_id: "1" },
  });
  expect(turns).toEqual([
    head('"name": "exec"', '"name": "agents__spawn"'),
    "user\n<cwd>/work</cwd>\n\nLook.",
    `assistant\n${called("view_image", '{"path": "a.png"}')}`,
    `tool\n${picture}`,
    `assistant\nI write.\n${called("exec", '{"cmd":"printf wor')}`,
    "tool\naborted\n\nThe folder is another now.",
    "assistant\n[no answer]",
    "user\nGo on.",
  ]);
  expect(ignored).toEqual([
    "client_metadata",
    "input.output.input_image",
    "messages.role",
    "messages.role.system",
    "reasoning.summary",
    "tools.web_search",
  ]);
});

test("Messages: a picture in a result, a system message in the middle, more tokens than the context has", async () => {
  const { turns, ignored } = await ask("/v1/messages", {
    max_tokens: 32_000,
    system: [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }],
    messages: [
      {
        role: "user",
        content: [
          { type: "text", text: "<reminder>" },
          { type: "text", text: "Look." },
        ],
      },
      { role: "system", content: [{ type: "text", text: "The date is another now." }] },
      {
        role: "assistant",
        content: [
          { type: "text", text: "I look." },
          { type: "tool_use", id: "toolu_1", name: "exec", input: { cmd: "a" } },
          { type: "tool_use", id: "toolu_2", name: "exec", input: { cmd: "b" } },
        ],
      },
      {
        role: "user",
        content: [
          {
            type: "tool_result",
            tool_use_id: "toolu_1",
            content: [{ type: "image", source: { type: "base64", media_type: "image/png", data: png } }],
          },
          { type: "tool_result", tool_use_id: "toolu_2", content: "no such file", is_error: true },
        ],
      },
    ],
    tools: [
      { name: "exec", description: "Runs", input_schema: command },
      { name: "later", description: "Another", input_schema: command, defer_loading: true },
    ],
    thinking: { type: "adaptive", display: "omitted" },
    context_management: { edits: [{ type: "clear_thinking_20251015", keep: "all" }] },
    output_config: { effort: "high" },
    metadata: { user_id: "1" },
  });
  expect(turns).toEqual([
    head('"name": "exec", "description": "Runs"', '"name": "later", "description": "Another"'),
    "user\n<reminder>\nLook.\n\nThe date is another now.",
    `assistant\nI look.\n${called("exec", '{"cmd": "a"}')}\n${called("exec", '{"cmd": "b"}')}`,
    `tool\n${picture}`,
    "tool\nError: no such file",
  ]);
  expect(ignored).toEqual([
    "context_management",
    "messages.content.content.image",
    "messages.role.system",
    "output_config.effort",
    "thinking",
    "tools.defer_loading",
  ]);
});

test("chats: calls side by side, a call that was cut, more tokens than the context has", async () => {
  const call = (id: string, args: string) => ({
    id,
    type: "function",
    function: { name: "exec", arguments: args },
  });
  const { turns, ignored } = await ask("/v1/chat/completions", {
    max_tokens: 32_000,
    messages: [
      { role: "system", content: "Be brief." },
      { role: "user", content: [{ type: "text", text: "Look." }] },
      {
        role: "assistant",
        content: null,
        tool_calls: [call("call_b0_0", '{"cmd":"a"}'), call("call_b0_1", '{"cmd":"b"}')],
      },
      { role: "tool", tool_call_id: "call_b0_1", content: "second" },
      { role: "tool", tool_call_id: "call_b0_0", content: [{ type: "text", text: "first" }] },
      { role: "assistant", content: "I write.", tool_calls: [call("call_c0_0", '{"cmd":"printf wor')] },
      { role: "user", content: "Go on." },
    ],
    tools: [{ type: "function", function: { name: "exec", parameters: command } }],
    tool_choice: "auto",
  });
  expect(turns).toEqual([
    head('"name": "exec"'),
    "user\nLook.",
    `assistant\n${called("exec", '{"cmd": "a"}')}\n${called("exec", '{"cmd": "b"}')}`,
    "tool\nfirst",
    "tool\nsecond",
    `assistant\nI write.\n${called("exec", '{"cmd":"printf wor')}`,
    "tool\n[no result: the call was interrupted]",
    "assistant\n[no answer]",
    "user\nGo on.",
  ]);
  expect(ignored).toEqual(["messages.role", "messages.tool_call_id"]);
});

test("chats: a summary, and calls of the turn that it cut in two", async () => {
  const { turns, ignored } = await ask("/v1/chat/completions", {
    messages: [
      { role: "user", content: "Sum up." },
      { role: "assistant", content: "Much was done." },
      {
        role: "assistant",
        content: "",
        tool_calls: [{ id: "call_1", type: "function", function: { name: "exec", arguments: "{}" } }],
      },
      { role: "tool", tool_call_id: "call_1", content: "done" },
      { role: "user", content: "Go on." },
    ],
  });
  expect(turns).toEqual([
    "user\nSum up.",
    "assistant\nMuch was done.",
    "user\n[the assistant goes on]",
    `assistant\n${called("exec", "{}")}`,
    "tool\ndone",
    "assistant\n[no answer]",
    "user\nGo on.",
  ]);
  expect(ignored).toEqual(["messages.role"]);
});
