/**
 * Models that think before they answer: how clients receive thoughts, and how they limit them. The model's
 * output is scripted.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { streamChat } from "../../server/cli/client.ts";
import {
  bodyOf,
  chatBody,
  chunksOf,
  contentOf,
  post,
  readEvents,
  startTestServer,
  type TestServer,
} from "./server.ts";

/** Template like real ones: thoughts between marks, which the prompt opens or closes on request. */
const template = `{%- if tools %}{{ tools | tojson }}{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}{% for call in m.tool_calls or [] %}<tool_call>{{ call | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% elif is_begun %}<think>
{% endif %}{% endif %}`;

const thought = "Two and two make four.";
const answers = [
  `<think>\n${thought}\n</think>\n\nFour.`,
  `${thought}\n</think>\n\nFour.`,
  `<think>\nI should look.\n</think>\n\n<tool_call>\n{"name": "look", "arguments": {"at": "it"}}\n</tool_call>`,
  `<think>\n${"on and ".repeat(40)}`,
  `<think>\nA "4" it is {"n": 5}\n</think>\n\n{"n": 4}`,
  '{"n": 4}',
  `<think>\n${"round ".repeat(3)}\n</think>\n\nDone.`,
];

let server: TestServer;
let client: OpenAI;
beforeAll(() => {
  server = startTestServer({ answers, template });
  client = new OpenAI({ baseURL: `${server.origin}/v1`, apiKey: "unused", maxRetries: 0 });
});
afterEach(() => server.settled());
afterAll(() => server.close());

const route = "/v1/chat/completions";

async function chat(seed: number, more: Readonly<Record<string, unknown>> = {}, to = server) {
  const response = await post(to, route, chatBody("2 + 2?", { seed, max_tokens: 150, ...more }));
  const { choices, usage } = await bodyOf(response);
  expect(response.status).toBe(200);
  const { message, finish_reason } = choices[0]!;
  const thoughts = message as { reasoning_content?: string; reasoning?: string };
  const told = [thoughts.reasoning_content, message.content, finish_reason] as const;
  return { told, thoughts, message, usage, ignored: response.headers.get("x-bunting-ignored") };
}

const tokensOf = async (prompt: string): Promise<number> =>
  (await bodyOf(await post(server, "/tokenize", { prompt }))).count;

describe("thoughts", () => {
  test("are told beside the answer, in both fields, and their tokens are counted", async () => {
    const { told, thoughts, usage } = await chat(0);
    expect(told).toEqual([thought, "Four.", "stop"]);
    expect(thoughts.reasoning).toBe(thought);
    const details = usage as unknown as { completion_tokens_details: { reasoning_tokens: number } };
    expect(details.completion_tokens_details.reasoning_tokens).toBe(
      await tokensOf(`<think>\n${thought}\n</think>`),
    );
  });

  test("are told apart by the client that chats, measures and stands in the page", async () => {
    const told = { thought: "", text: "" };
    const target = { url: server.origin, apiKey: null };
    const body = { ...chatBody("2 + 2?", { seed: 0, max_tokens: 150 }) };
    for await (const event of streamChat(target, body, new AbortController().signal))
      if (event.kind === "thought" || event.kind === "text") told[event.kind] += event.text;
    expect(told).toEqual({ thought, text: "Four." });
  });

  test("may be begun by the prompt, or closed by it", async () => {
    const begun = await chat(1, { chat_template_kwargs: { is_begun: true } });
    expect(begun.told).toEqual([thought, "Four.", "stop"]);
    expect((await chat(1)).told).toEqual([undefined, answers[1]!, "stop"]);
    for (const more of [{ chat_template_kwargs: { enable_thinking: false } }, { reasoning_effort: "none" }]) {
      expect((await chat(0, more)).told).toEqual([undefined, answers[0]!, "stop"]);
    }
  });

  test("stream before the answer, piece by piece, to the same whole", async () => {
    for (const seed of [0, 2, 4, 6]) {
      const tools = seed === 2 ? { tools: [look] } : {};
      const whole = await chat(seed, tools);
      const response = await post(server, route, chatBody("2 + 2?", { seed, stream: true, ...tools }));
      const { events } = await readEvents(response);
      const deltas = chunksOf(events).flatMap((chunk) => chunk.choices.map(({ delta }) => delta)) as {
        reasoning_content?: string;
        reasoning?: string;
      }[];
      const thoughts = deltas.flatMap((delta) => delta.reasoning_content ?? []);
      expect(thoughts.length).toBeGreaterThan(2);
      expect(thoughts.join("")).toBe(whole.thoughts.reasoning_content!);
      expect(deltas.flatMap((delta) => delta.reasoning ?? [])).toEqual(thoughts);
      expect(contentOf(events)).toBe(whole.message.content ?? "");
    }
  });

  test("stand in one field if the server is set to it, or in none if the client wants none", async () => {
    const one = startTestServer({ answers, template, reasoningField: "reasoning" });
    expect((await chat(0, {}, one)).thoughts).toMatchObject({ reasoning: thought });
    expect((await chat(0, {}, one)).thoughts.reasoning_content).toBeUndefined();
    await one.close();
    expect((await chat(0, { include_reasoning: false })).told).toEqual([undefined, "Four.", "stop"]);
  });

  test("are taken back, under either name", async () => {
    const rendered = async (message: object) => {
      const messages = [
        { role: "user", content: "2 + 2?" },
        { role: "assistant", ...message },
      ];
      const { tokens } = await bodyOf(await post(server, "/tokenize", { messages }));
      const { prompt } = (await bodyOf(await post(server, "/detokenize", { tokens }))) as unknown as {
        prompt: string;
      };
      return prompt;
    };
    for (const name of ["reasoning_content", "reasoning"]) {
      expect(await rendered({ content: "Four.", [name]: thought })).toContain(
        `assistant\n<think>\n${thought}\n</think>\n\nFour.<|im_end|>`,
      );
    }
  });
});

const look = {
  type: "function" as const,
  function: { name: "look", parameters: { type: "object", properties: { at: { type: "string" } } } },
};
const schema = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
const asNumber = { response_format: { type: "json_schema", json_schema: { name: "n", schema } } };

describe("what an answer is held to begins after its thoughts", () => {
  test("or at once where there are none", async () => {
    expect((await chat(4, asNumber)).told).toEqual(['A "4" it is {"n": 5}', '{"n": 4}', "stop"]);
    expect((await chat(5, asNumber)).told).toEqual([undefined, '{"n": 4}', "stop"]);
    const begun = { ...asNumber, chat_template_kwargs: { is_begun: true } };
    const { told } = await chat(1, begun);
    expect(told[0]).toBe(thought);
    expect(told[1]).toStartWith("{");
    const closed = { ...asNumber, chat_template_kwargs: { enable_thinking: false } };
    expect((await chat(4, closed)).told[1]).toStartWith("{");
  });

  test("calls that may be made, and those that must", async () => {
    for (const tool_choice of ["auto", "required"]) {
      const { told, message } = await chat(2, { tools: [look], tool_choice });
      expect(told).toEqual(["I should look.", null as never, "tool_calls"]);
      expect(message.tool_calls![0]!.function).toEqual({ name: "look", arguments: '{"at": "it"}' });
    }
  });
});

describe("a limit of thoughts", () => {
  const limit = 12;

  test("closes them at so many tokens, and the answer follows", async () => {
    for (const fields of [{ thinking_token_budget: limit }, { thinking_budget_tokens: limit }]) {
      const { told, usage } = await chat(3, { ...fields, max_tokens: 60 });
      expect(told[0]!.trim()).toBe("on and ".repeat(40).slice(0, told[0]!.length).trim());
      const { reasoning_tokens } = (
        usage as unknown as { completion_tokens_details: { reasoning_tokens: number } }
      ).completion_tokens_details;
      const marks = (await tokensOf("<think>\n")) + (await tokensOf("</think>"));
      expect(reasoning_tokens).toBeLessThanOrEqual(limit + marks);
      expect(reasoning_tokens).toBeGreaterThanOrEqual(limit);
      expect(told[1]).not.toContain("<think>");
    }
  });

  test("leaves shorter ones as they are, and counts with what follows them", async () => {
    expect((await chat(6, { thinking_token_budget: 40 })).told).toEqual([
      "round round round",
      "Done.",
      "stop",
    ]);
    const held = await chat(3, { ...asNumber, thinking_token_budget: limit, max_tokens: 200 });
    expect(held.told[1]).toStartWith('{"n":');
    const none = await chat(3, { thinking_token_budget: 0, max_tokens: 40 });
    expect(none.told[0]).toBeUndefined();
  });

  test("has no effect with a model that does not think, which the answer tells", async () => {
    const plain = startTestServer({ answers: ["Four."] });
    const { told, ignored } = await chat(0, { thinking_token_budget: 4, reasoning_effort: "low" }, plain);
    expect(told).toEqual([undefined, "Four.", "stop"]);
    expect(ignored).toBe("reasoning_effort, thinking_token_budget");
    await plain.close();
  });

  test("must be a number, and an effort one that is known", async () => {
    for (const more of [{ thinking_token_budget: -1 }, { reasoning_effort: "enormous" }]) {
      const response = await post(server, route, chatBody("Hi", more));
      expect(response.status).toBe(400);
      expect((await bodyOf(response)).error.param).toBe(Object.keys(more)[0]!);
    }
  });
});

describe("official clients", () => {
  const messages = [{ role: "user" as const, content: "2 + 2?" }];

  test("OpenAI's helper puts the stream of a thinking model together", async () => {
    const final = await client.chat.completions
      .stream({ model: "demo", messages, tools: [look], seed: 2 })
      .finalChatCompletion();
    const [choice] = final.choices;
    expect(choice!.finish_reason).toBe("tool_calls");
    expect(final.choices[0]!.message.tool_calls).toMatchObject([{ function: { arguments: '{"at": "it"}' } }]);
  });

  test("Anthropic's hears thoughts as blocks, and sends them back", async () => {
    const anthropic = new Anthropic({ baseURL: server.origin, apiKey: "unused", maxRetries: 0 });
    const asked = {
      model: "demo",
      max_tokens: 150,
      messages,
      seed: 0,
      thinking: { type: "enabled", budget_tokens: 1024 },
    } as Anthropic.MessageCreateParamsNonStreaming;
    const whole = await anthropic.messages.create(asked);
    const streamed = await anthropic.messages.stream(asked).finalMessage();
    expect<unknown>(whole.content).toEqual([
      { type: "thinking", thinking: thought, signature: expect.stringMatching(/./) },
      { type: "text", text: "Four." },
    ]);
    expect<unknown>(streamed.content).toEqual(whole.content);
    const again = await anthropic.messages.countTokens({
      model: "demo",
      messages: [...messages, { role: "assistant", content: whole.content }, ...messages],
    });
    const bare = await anthropic.messages.countTokens({
      model: "demo",
      messages: [...messages, { role: "assistant", content: "Four." }, ...messages],
    });
    expect(again.input_tokens).toBeGreaterThan(bare.input_tokens + 5);
    const omitting = { ...asked, thinking: { ...asked.thinking, display: "omitted" } } as typeof asked;
    const omitted = await anthropic.messages.create(omitting);
    expect<unknown>((await anthropic.messages.stream(omitting).finalMessage()).content).toEqual(
      omitted.content,
    );
    expect<unknown>(omitted.content[0]).toMatchObject({ type: "thinking", thinking: "" });
    const sealed = await anthropic.messages.countTokens({
      model: "demo",
      messages: [...messages, { role: "assistant", content: omitted.content }, ...messages],
    });
    expect(sealed).toEqual(again);
    const limited = await anthropic.messages.create({
      ...asked,
      seed: 3,
      max_tokens: 40,
      thinking: { type: "enabled", budget_tokens: 5 },
    } as Anthropic.MessageCreateParamsNonStreaming);
    expect(limited.content[0]!.type).toBe("thinking");
  });
});
