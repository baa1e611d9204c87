/**
 * Histories of six clients, each on its own wire format, under strict chat templates of model families. Every
 * conversation that the server has answered once can continue.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { dialects } from "../support/dialects.ts";
import { familyTemplates } from "../support/family-templates.ts";
import { startTestServer, type TestServer } from "./server.ts";

let servers: Map<string, TestServer>;
beforeAll(() => {
  servers = new Map(
    Object.entries(familyTemplates).map(([name, template]) => [
      name,
      startTestServer({ template, stepMs: 0, spec: { contextMax: 8192 } }),
    ]),
  );
});
afterAll(async () => {
  for (const server of servers.values()) await server.close();
});

async function answered(
  name: string,
  route: string,
  body: object,
): Promise<{ status: number; text: string; ignored: string }> {
  const response = await fetch(servers.get(name)!.origin + route, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "demo", stream: false, ...body }),
  });
  const ignored = response.headers.get("x-bunting-ignored") ?? "";
  return { status: response.status, text: await response.text(), ignored };
}

const image = "data:image/png;base64,aGk=";
const schema = { type: "object", properties: { path: { type: "string" } } };
const made = (id: string | undefined, name: string, values: unknown) => ({
  ...(id === undefined ? {} : { id }),
  type: "function",
  function: { name, arguments: values },
});

interface Client {
  readonly route: string;
  readonly body: object;
  /** Extra fields for templates with tools. */
  readonly tools: object;
}

const clients: Readonly<Record<string, Client>> = {
  Codex: {
    route: "/v1/responses",
    body: {
      max_output_tokens: 1,
      instructions: "You write code.",
      input: [
        { type: "message", role: "developer", content: [{ type: "input_text", text: "Be careful." }] },
        { type: "message", role: "user", content: [{ type: "input_text", text: "<environment/>" }] },
        { type: "message", role: "user", content: [{ type: "input_text", text: "Fix it." }] },
        { type: "reasoning", summary: [], content: null, encrypted_content: "opaque" },
        { type: "message", role: "assistant", content: [{ type: "output_text", text: "Let me look." }] },
        { type: "function_call", call_id: "call_1", name: "shell", arguments: '{"command": ["ls"]}' },
        { type: "function_call", call_id: "call_2", name: "view_image", arguments: '{"path": "a.png"}' },
        {
          type: "function_call_output",
          call_id: "call_2",
          output: [{ type: "input_image", image_url: image }],
        },
        { type: "function_call_output", call_id: "call_1", output: "a.png" },
        { type: "web_search_call", status: "completed", action: { type: "search", query: "png" } },
        { type: "function_call", call_id: "call_3", name: "apply_patch", arguments: '{"input": "*** Beg' },
        { type: "message", role: "user", content: [{ type: "input_text", text: "Go on." }] },
      ],
    },
    tools: { tools: [{ type: "function", name: "shell", parameters: schema }, { type: "web_search" }] },
  },
  "Claude Code": {
    route: "/v1/messages",
    body: {
      max_tokens: 1,
      system: [{ type: "text", text: "You write code.", cache_control: { type: "ephemeral" } }],
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: "<system-reminder/>" },
            { type: "text", text: "Fix it." },
          ],
        },
        {
          role: "assistant",
          content: [
            { type: "thinking", thinking: "First look.", signature: "" },
            { type: "text", text: "Let me look." },
            { type: "tool_use", id: "toolu_01AbCdEfGhIj", name: "Read", input: { path: "a.png" } },
            { type: "tool_use", id: "toolu_02AbCdEfGhIj", name: "Bash", input: {} },
          ],
        },
        {
          role: "user",
          content: [
            { type: "tool_result", tool_use_id: "toolu_02AbCdEfGhIj", content: "no", is_error: true },
            {
              type: "tool_result",
              tool_use_id: "toolu_01AbCdEfGhIj",
              content: [{ type: "image", source: { type: "base64", media_type: "image/png", data: "aGk=" } }],
            },
            { type: "text", text: "<system-reminder/>" },
          ],
        },
        { role: "assistant", content: [{ type: "tool_use", id: "toolu_03", name: "Bash", input: {} }] },
        { role: "user", content: [{ type: "text", text: "[Request interrupted by user]" }] },
        { role: "user", content: "Go on." },
      ],
    },
    tools: {
      tools: [
        { name: "mcp__files__read.all".replace(".", "_"), input_schema: schema },
        { type: "web_search_20250305", name: "web_search" },
      ],
    },
  },
  opencode: {
    route: "/v1/chat/completions",
    body: {
      max_tokens: 1,
      messages: [
        { role: "system", content: "You write code." },
        { role: "system", content: "Be careful." },
        { role: "user", content: [{ type: "text", text: "Fix it." }] },
        {
          role: "assistant",
          content: "",
          reasoning_content: "First look.",
          tool_calls: [made("call_00_aBcD", "read", '{"path":"a"}'), made("call_01_eFgH", "list", "{}")],
        },
        { role: "tool", tool_call_id: "call_01_eFgH", content: "a" },
        { role: "tool", tool_call_id: "call_00_aBcD", content: "half \ud83d" },
        {
          role: "user",
          content: [
            { type: "text", text: "Attached:" },
            { type: "image_url", image_url: { url: image } },
          ],
        },
      ],
    },
    tools: { tools: [{ type: "function", function: { name: "read", parameters: schema } }] },
  },
  "Qwen Code": {
    route: "/v1/chat/completions",
    body: {
      max_tokens: 1,
      messages: [
        { role: "system", content: "You write code." },
        { role: "user", content: "<context/>" },
        { role: "assistant", content: "Got it." },
        { role: "user", content: "Fix it." },
        { role: "assistant", content: null, tool_calls: [made("call_1", "read_file", '{"path": "a')] },
        { role: "tool", tool_call_id: "call_1", content: null },
        { role: "assistant", content: "" },
        { role: "user", content: "Go on." },
      ],
    },
    tools: { tools: [{ type: "function", function: { name: "read_file", parameters: schema } }] },
  },
  "Open WebUI": {
    route: "/v1/chat/completions",
    body: {
      max_tokens: 1,
      messages: [
        { role: "assistant", content: "Welcome." },
        {
          role: "user",
          content: [
            { type: "image_url", image_url: { url: image } },
            { type: "text", text: "What?" },
          ],
        },
        { role: "assistant", content: "A cat." },
        { role: "system", content: "Answer in verse." },
        { role: "user", content: "More." },
      ],
    },
    tools: {},
  },
  "Ollama's": {
    route: "/api/chat",
    body: {
      options: { num_predict: 1 },
      messages: [
        { role: "system", content: "You help." },
        { role: "user", content: "What?", images: ["aGk="] },
        {
          role: "assistant",
          content: "",
          tool_calls: [made(undefined, "files.read", { path: "a" }), made(undefined, "now", {})],
        },
        { role: "tool", tool_name: "now", content: "noon" },
        { role: "tool", tool_name: "files.read", content: "text", images: ["aGk="] },
        { role: "assistant", content: "It is noon." },
        { role: "user", content: "More." },
      ],
    },
    tools: { tools: [{ type: "function", function: { name: "files.read", parameters: schema } }] },
  },
};

describe.each(Object.keys(familyTemplates))("%s", (name) => {
  test.each(Object.keys(clients))("goes on with a history of %s", async (client) => {
    const { route, body, tools } = clients[client]!;
    const offers = familyTemplates[name]!.includes("tools") ? [{}, tools] : [{}];
    for (const offer of offers) {
      const { status, text } = await answered(name, route, { ...body, ...offer });
      expect([status, status === 200 ? "" : text]).toEqual([200, ""]);
    }
  });
});

test("what was read otherwise than it was sent is named on every wire format", async () => {
  const told = async (client: string, name: string) => {
    const { route, body, tools } = clients[client]!;
    return (await answered(name, route, { ...body, ...tools })).ignored.split(", ");
  };
  expect(await told("Codex", "mistral")).toEqual([
    "tools.web_search",
    "input.reasoning",
    "input.output.input_image",
    "input.web_search_call",
    "messages.role.system",
    "messages.tool_call_id",
    "messages.content",
    "messages.role",
  ]);
  expect(await told("Claude Code", "qwen 3")).toEqual([
    "tools.web_search_20250305",
    "messages.content.content.image",
  ]);
  expect(await told("Open WebUI", "qwen 3.5")).toEqual([
    "messages.content.image_url",
    "messages.role.system",
  ]);
  expect(await told("Ollama's", "glm")).toEqual(["messages.images"]);
});

test("an answer of two calls goes on under a template that demands ids of nine letters", async () => {
  const calls =
    '[TOOL_CALLS] [{"name": "read", "arguments": {"path": "a"}}, {"name": "list", "arguments": {"path": "b"}}]';
  const server = startTestServer({ template: familyTemplates.mistral!, answers: [calls] });
  servers.set("calls", server);
  const tools = [
    { type: "function", function: { name: "read", parameters: schema } },
    { type: "function", function: { name: "list", parameters: schema } },
  ];
  const messages: object[] = [{ role: "user", content: "Read." }];
  const first = JSON.parse(
    (await answered("calls", "/v1/chat/completions", { messages, tools, seed: 0 })).text,
  );
  const { message } = first.choices[0] as { message: { tool_calls: { id: string }[] } };
  expect(message.tool_calls).toHaveLength(2);
  const results = message.tool_calls
    .toReversed()
    .map(({ id }) => ({ role: "tool", tool_call_id: id, content: id }));
  const { status } = await answered("calls", "/v1/chat/completions", {
    messages: [...messages, message, ...results],
    tools,
    max_tokens: 1,
  });
  expect(status).toBe(200);
});

test("an id that the model made up is the call's on every wire format that has ids", async () => {
  const answer = '[TOOL_CALLS]read[CALL_ID]a7b2C3d4e[ARGS]{"path": "a"}';
  const { template } = dialects.get("Mistral Small 3.2")!;
  const server = startTestServer({ template, answers: () => [answer] });
  servers.set("ids", server);
  const tool = { name: "read", description: "Reads.", parameters: schema };
  const messages = [{ role: "user", content: "Read." }];
  const offered = { messages, tools: [{ type: "function", function: tool }] };
  const whole = JSON.parse((await answered("ids", "/v1/chat/completions", offered)).text);
  const { tool_calls: calls } = whole.choices[0].message;
  expect(calls).toEqual([
    { id: "a7b2C3d4e", type: "function", function: { name: "read", arguments: '{"path": "a"}' } },
  ]);
  const stream = (await answered("ids", "/v1/chat/completions", { ...offered, stream: true })).text;
  expect(stream).toContain('"id":"a7b2C3d4e"');
  const anthropic = { messages, max_tokens: 100, tools: [{ name: "read", input_schema: schema }] };
  expect(JSON.parse((await answered("ids", "/v1/messages", anthropic)).text).content).toEqual([
    { type: "tool_use", id: "a7b2C3d4e", name: "read", input: { path: "a" } },
  ]);
  const responses = { input: "Read.", tools: [{ type: "function", ...tool }] };
  const [item] = JSON.parse((await answered("ids", "/v1/responses", responses)).text).output;
  expect(item).toMatchObject({ type: "function_call", call_id: "a7b2C3d4e", name: "read" });
});
