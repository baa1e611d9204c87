/** Compaction of OpenAI's Responses: the official client, and a model that writes the summary. */

import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import OpenAI from "openai";
import type { ResponseCompactParams, ResponseInputItem } from "openai/resources/responses/responses";
import { startTestServer, type TestServer } from "./server.ts";

const template = readFileSync(join(import.meta.dir, "../reference/tools/template.jinja"), "utf8");
const call = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>';
/** Answers by seed. */
const answers = ["It rained in Rome.", `${call}\n`, `I look first.\n${call}`];
const tools = [{ type: "function" as const, name: "look", parameters: { type: "object" }, strict: false }];

let server: TestServer;
let client: OpenAI;
beforeAll(() => {
  server = startTestServer({ answers, template });
  client = new OpenAI({ baseURL: `${server.origin}/v1`, apiKey: "none", maxRetries: 0 });
});
afterEach(() => server.settled());
afterAll(() => server.close());

const said = (role: "user" | "assistant" | "developer", content: string) => ({ role, content });
const past: ResponseInputItem[] = [
  said("developer", "Be brief."),
  said("user", "How is the weather?"),
  { type: "function_call", call_id: "c", name: "look", arguments: "{}" },
  { type: "function_call_output", call_id: "c", output: "rain" },
  said("assistant", "It rains."),
  said("user", "Thanks."),
];

type Body = ResponseCompactParams & Record<string, unknown>;
const compact = (more: Partial<Body> = {}) =>
  client.responses.compact({ model: "demo", input: past, tools, seed: 0, ...more } as ResponseCompactParams);

async function failure(promise: PromiseLike<unknown>) {
  try {
    await promise;
  } catch (error) {
    return error as InstanceType<typeof OpenAI.APIError>;
  }
  throw new Error("expected a failure");
}

/** Number of tokens that the prompt of an input has. */
async function tokensOf(input: unknown[]): Promise<number> {
  return (await client.responses.inputTokens.count({ model: "demo", input: input as ResponseInputItem[] }))
    .input_tokens;
}

test("a conversation becomes its messages and a summary, which later requests read", async () => {
  const { id, object, output, usage } = await compact();
  expect([id, object]).toEqual([expect.stringMatching(/^resp_/), "response.compaction"]);
  const facts = output.map((item) => [item.type, "content" in item ? item.content : null]);
  const text = (text: string) => [{ type: "input_text", text }] as never;
  expect(facts).toEqual([
    ["message", text("Be brief.")],
    ["message", text("How is the weather?")],
    ["message", text("Thanks.")],
    ["compaction", null],
  ]);
  expect(usage.output_tokens).toBeGreaterThan(0);
  const next = said("user", "And now?");
  const window = [...output, next];
  const summary = "This is a summary of the conversation until here, written by you:\n\nIt rained in Rome.";
  const asText = [past[0]!, past[1]!, past[5]!, said("user", summary), next];
  expect(await tokensOf(window)).toBe(await tokensOf(asText));
  const body = { model: "demo", input: window as ResponseInputItem[], seed: 0 };
  const { data, response } = await client.responses.create(body as never).withResponse();
  expect(response.headers.get("x-bunting-ignored")).toBeNull();
  expect((await client.responses.inputItems.list(data.id)).data.map(({ type }) => type as string)).toContain(
    "compaction",
  );
  const again = await compact({ input: window as ResponseInputItem[] });
  expect(again.output.map(({ type }) => type)).toEqual([
    "message",
    "message",
    "message",
    "message",
    "compaction",
  ]);
});

test("the cached prompt of the conversation is found", async () => {
  const input = [...past, said("user", "Tell me more. ".repeat(40))];
  const { usage } = await client.responses.create({ model: "demo", input, tools, seed: 0 } as never);
  const compacted = await compact({ input });
  expect(compacted.usage.input_tokens_details.cached_tokens).toBeGreaterThan(usage!.input_tokens - 16);
});

test("what is stored is compacted too, and stays as it is", async () => {
  const { id } = await client.responses.create({ model: "demo", input: "Who?", seed: 0 } as never);
  const ofResponse = await compact({ input: "And?", previous_response_id: id });
  expect(ofResponse.output.map(({ type }) => type)).toEqual(["message", "message", "compaction"]);
  const { id: conversation } = await client.conversations.create({ items: past as never });
  const ofConversation = await compact({ input: null, conversation });
  expect(ofConversation.output.length).toBe(4);
  expect((await client.conversations.items.list(conversation)).data.length).toBe(past.length);
  const { data } = await client.conversations.items.create(conversation, {
    items: [ofConversation.output[3] as never],
  });
  expect(data.map(({ type }) => type)).toEqual(["compaction"]);
});

test("what is no whole summary is an error, and calls beside it are left out", async () => {
  const cut = await failure(compact({ max_output_tokens: 2 }));
  expect([cut.status, cut.param, cut.message]).toEqual([
    400,
    "max_output_tokens",
    expect.stringContaining("within 2 tokens"),
  ]);
  const none = await failure(compact({ seed: 1 }));
  expect([none.status, none.message]).toEqual([500, expect.stringContaining("wrote no summary")]);
  const { output } = await compact({ seed: 2 });
  expect(
    Buffer.from(
      (output.at(-1) as { encrypted_content: string }).encrypted_content.split(":")[1]!,
      "base64",
    ).toString(),
  ).toBe("I look first.");
});

test("fields that say nothing about a summary are named, or refused", async () => {
  const more = {
    text: { verbosity: "low" },
    parallel_tool_calls: false,
    store: false,
    tool_choice: "required",
  };
  const { response } = await compact(more).withResponse();
  expect(response.headers.get("x-bunting-ignored")).toBe("text, parallel_tool_calls, store, tool_choice");
  for (const field of ["stream", "background"]) {
    const refused = await failure(compact({ [field]: true }));
    expect([refused.status, refused.param]).toEqual([400, field]);
  }
  expect((await failure(compact({ input: [] }))).param).toBe("input");
});
