/**
 * Answers of the embedded model from the running program: the twenty questions one by one and concurrently,
 * tools, and a prefix shared by many requests.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI from "openai";
import { answerTo, asked, questions, weatherAsked, weatherCall, weatherTool } from "../support/questions.ts";
import { longText, recalls } from "../support/recall.ts";
import { allows } from "../support/schema-oracle.ts";
import { Program } from "./program.ts";

let program: Program;
let client: OpenAI;

beforeAll(async () => {
  program = Program.bunting(["serve", "--device", "cpu", "--port", "0"]);
  client = new OpenAI({ baseURL: `${await program.url()}/v1`, apiKey: "none", maxRetries: 0 });
}, 60_000);
afterAll(async () => {
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);
});

test("twenty questions, one by one and all at once, from a cold cache and a warm one", async () => {
  expect(questions).toHaveLength(20);
  for (const question of questions) {
    expect([question.messages.at(-1)!.content, await answerTo(client, question)]).toEqual([
      question.messages.at(-1)!.content,
      question.answer,
    ]);
  }
  const crowd = [...questions, ...questions, ...questions, ...questions];
  expect(await Promise.all(crowd.map((question) => answerTo(client, question)))).toEqual(
    crowd.map(({ answer }) => answer),
  );
}, 60_000);

test("a tool is called, whole and streamed", async () => {
  const request = { model: "demo", messages: [weatherAsked], tools: [weatherTool] };
  const { finish_reason, message } = (await client.chat.completions.create(request)).choices[0]!;
  expect(finish_reason).toBe("tool_calls");
  expect(message.tool_calls).toMatchObject([{ type: "function", function: weatherCall }]);
  let streamedArguments = "";
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    streamedArguments += chunk.choices[0]!.delta.tool_calls?.[0]?.function?.arguments ?? "";
  }
  expect(JSON.parse(streamedArguments)).toEqual({ city: "Zurich" });
});

test("a code in 1,500 tokens is found by a crowd that shares them", async () => {
  const asking = Array.from({ length: 12 }, (_, index) => recalls[index % 2]!);
  const answers = await Promise.all(
    asking.map(({ question, answer }) => answerTo(client, asked(`${longText} ${question}`, answer))),
  );
  expect(answers).toEqual(asking.map(({ answer }) => answer));
}, 60_000);

const person = {
  type: "object",
  properties: {
    name: { type: "string", maxLength: 20 },
    age: { type: "integer", minimum: 0, maximum: 120 },
    likes: { type: "array", items: { enum: ["tea", "books", "rain"] }, uniqueItems: true },
  },
  required: ["name", "age", "likes"],
  additionalProperties: false,
};

test("answers held to a schema obey it at any temperature, beside others that are free", async () => {
  const asking = Array.from({ length: 24 }, async (_, seed) => {
    const { finish_reason, message } = (
      await client.chat.completions.create({
        model: "demo",
        messages: [{ role: "user", content: "Tell me of a person." }],
        temperature: 1.5,
        seed,
        max_tokens: 200,
        response_format: { type: "json_schema", json_schema: { name: "person", schema: person } },
      })
    ).choices[0]!;
    return finish_reason === "length" ? "length" : allows(person, JSON.parse(message.content!));
  });
  const [free, held] = await Promise.all([
    Promise.all(questions.map((question) => answerTo(client, question))),
    Promise.all(asking),
  ]);
  expect(free).toEqual(questions.map(({ answer }) => answer));
  expect(held.filter((verdict) => verdict === true).length).toBeGreaterThan(12);
  expect(held).not.toContain(false);
}, 60_000);

test("a call that is forced is the call that would be made", async () => {
  const request = {
    model: "demo",
    messages: [weatherAsked],
    tools: [weatherTool],
    tool_choice: "required" as const,
  };
  const { finish_reason, message } = (await client.chat.completions.create(request)).choices[0]!;
  expect(finish_reason).toBe("tool_calls");
  expect(message.tool_calls).toMatchObject([{ type: "function", function: { name: weatherCall.name } }]);
});
