/** Tool calls in the forms of several models: forced, drawn at random, whole and streamed. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI from "openai";
import { goldenCalls } from "../support/golden-calls.ts";
import { allows } from "../support/schema-oracle.ts";
import { startTestServer, type TestServer } from "./server.ts";

/** Snippets of chat templates that identify every call form, two of them with thoughts. */
const shown: Readonly<Record<string, string>> = {
  ...Object.fromEntries(Object.entries(goldenCalls).map(([name, { template }]) => [name, template])),
  Cohere: '<|START_THINKING|><|END_THINKING|><|START_ACTION|>[{"tool_name": …}]',
  "gpt-oss":
    "<|channel|>analysis<|message|><|channel|>commentary to=functions.name <|constrain|>json<|message|>",
};

const parameters = {
  type: "object",
  properties: {
    city: { type: "string", enum: ["Rome", "Oslo", 'The "Hague"'] },
    days: { type: "integer", minimum: 1, maximum: 14 },
    exact: { type: "boolean" },
    name: { type: "string", maxLength: 8 },
  },
  required: ["city", "days"],
  additionalProperties: false,
};
const tools = ["weather", "forecast"].map((name) => ({
  type: "function" as const,
  function: { name, parameters, strict: true },
}));
const messages = [{ role: "user" as const, content: "Weather?" }];

let servers: Map<string, TestServer>;
beforeAll(() => {
  const templateOf = (mark: string) =>
    `{% if tools %}{{ tools | tojson }}${mark}{% endif %}{% for m in messages %}{{ m.content }}{{ m.tool_calls }}\n{% endfor %}`;
  servers = new Map(
    Object.entries(shown).map(([name, mark]) => [name, startTestServer({ template: templateOf(mark) })]),
  );
});
afterAll(async () => {
  for (const server of servers.values()) await server.close();
});

const clientOf = (name: string) =>
  new OpenAI({ baseURL: `${servers.get(name)!.origin}/v1`, apiKey: "none", maxRetries: 0 });

test.each(Object.keys(shown))(
  "%s: calls that are forced obey, and a stream makes the same of them",
  async (name) => {
    const client = clientOf(name);
    let finished = 0;
    for (let seed = 0; seed < 5; seed++) {
      const asked = {
        model: "demo",
        messages,
        tools,
        seed,
        temperature: 1.5,
        max_tokens: 400,
        tool_choice: "required" as const,
        parallel_tool_calls: false,
        thinking_token_budget: 4, // no effect on forms without thoughts
      };
      const [choice] = (await client.chat.completions.create(asked)).choices;
      if (choice!.finish_reason === "length") continue; // the helper treats it as an error
      const final = await client.chat.completions.stream(asked).finalChatCompletion();
      const callsOf = (message: OpenAI.ChatCompletionMessage) =>
        (message.tool_calls ?? []).map((call) => (call.type === "function" ? call.function : null)!);
      const calls = callsOf(choice!.message);
      expect(callsOf(final.choices[0]!.message).map((call) => call.arguments)).toEqual(
        calls.map((call) => call.arguments),
      );
      expect(choice!.message.content).toBeNull();
      expect(choice!.finish_reason).toBe("tool_calls");
      expect(calls).toHaveLength(1);
      for (const call of calls) {
        expect(["weather", "forecast"]).toContain(call.name);
        expect([call.arguments, allows(parameters, JSON.parse(call.arguments))]).toEqual([
          call.arguments,
          true,
        ]);
      }
      finished++;
    }
    expect(finished).toBeGreaterThan(2);
  },
);

test.each(Object.keys(shown))("%s: calls have names as long and as odd as a vendor allows", async (name) => {
  const called = async (route: string, body: object): Promise<string> => {
    const response = await fetch(servers.get(name)!.origin + route, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "demo", messages, stream: false, ...body }),
    });
    expect(response.status).toBe(200);
    return await response.text();
  };
  const long = "mcp_tool_".padEnd(128, "x");
  const none = { type: "object", properties: {}, additionalProperties: false };
  const anthropic = { tools: [{ name: long, input_schema: none }], tool_choice: { type: "any" } };
  const thinking = { type: "enabled", budget_tokens: 4 };
  expect(await called("/v1/messages", { ...anthropic, thinking, max_tokens: 400 })).toContain(
    `"name":"${long}"`,
  );
  if (name === "gpt-oss") return; // its thoughts have no limit on Ollama's route
  const odd = { type: "function", function: { name: "files.read/all", parameters: none } };
  const ollama = { tools: [odd], tool_choice: "required", options: { num_predict: 400 } };
  expect(await called("/api/chat", ollama)).toContain('"name":"files.read/all"');
});

test("calls cannot be forced where no form is known, and are not read", async () => {
  const server = startTestServer({ template: "{% if tools %}{{ tools | tojson }}{% endif %}{{ messages }}" });
  const client = new OpenAI({ baseURL: `${server.origin}/v1`, apiKey: "none", maxRetries: 0 });
  const asked = { model: "demo", messages, tools, max_tokens: 4 };
  const error = await client.chat.completions
    .create({ ...asked, tool_choice: "required" })
    .catch((one) => one);
  expect([error.status, error.param]).toEqual([400, "tool_choice"]);
  expect(error.message).toContain("the form in which this model writes calls is not known");
  const [choice] = (await client.chat.completions.create(asked)).choices;
  expect(choice!.message.tool_calls).toBeUndefined();
  await server.close();
});
