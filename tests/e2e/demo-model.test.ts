/**
 * The embedded model's answers from the running program: the twenty questions one by one and in a crowd, tools, and a
 * prefix that a crowd shares.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI from "openai";
import { answerTo, asked, questions, weatherAsked, weatherCall, weatherTool } from "../support/questions.ts";
import { longText, recalls } from "../support/recall.ts";
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
