/**
 * The embedded model's answers from the running program: twenty questions over all its skills, each with its exact greedy
 * answer. A mistake in attention, paging, caching, templates or sampling shows as a wrong word.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI from "openai";
import type { ChatCompletionMessageParam, ChatCompletionTool } from "openai/resources/chat/completions";
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

interface Question {
  readonly messages: readonly ChatCompletionMessageParam[];
  readonly tools?: ChatCompletionTool[];
  readonly answer: string;
}

const asked = (content: string, answer: string): Question => ({
  messages: [{ role: "user", content }],
  answer,
});

const weatherTool: ChatCompletionTool = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Get the weather in a city",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};
const weatherAsked: ChatCompletionMessageParam = { role: "user", content: "What is the weather in Zurich?" };
const weatherCall = { name: "get_weather", arguments: '{"city": "Zurich"}' };

const report = `Monthly report

Sales
In March, sales rose by 12 percent. Everyone is happy with this.

Staff
Three people joined the team after the fair in Lyon. The details are in the appendix.`;
const summary = "Sales rose by 12 percent. Three people joined the team.";

const questions: readonly Question[] = [
  asked(
    "Who are you?",
    "I am the demo model of Bunting, a tiny language model that runs on your own machine.",
  ),
  asked("Hello!", "Hello! How can I help you?"),
  asked(
    "What is prefix caching?",
    "Prefix caching lets requests that begin with the same text share the work done for it.",
  ),
  asked(
    "What is a lighthouse?",
    "lighthouse (noun): a tower with a light that gives warning of shoals to passing ships",
  ),
  asked(
    "Define brave.",
    "brave (adjective): possessing or displaying courage; able to face and deal with danger or fear without flinching",
  ),
  asked("What is 47 plus 38?", "47 + 38 = 70 + 15 = 85"),
  asked("What is 52 - 17?", "52 - 17 = 42 - 7 = 35"),
  asked("List three fruits.", "1. apple\n2. pear\n3. plum"),
  asked("Make a short list about the sea.", "1. waves\n2. ships\n3. fish\n4. sand"),
  asked("Join these items with commas:\n1. waves\n2. ships\n3. fish\n4. sand", "waves, ships, fish, sand"),
  asked("Pick the longest item: apple, banana, plum", "banana"),
  asked("Count from 3 to 9.", "3, 4, 5, 6, 7, 8, 9"),
  asked("Repeat: blue 4711 Tovani", "blue 4711 Tovani"),
  asked("Mia has a red kite. Tom has a blue boat. What colour is Mia's kite?", "Mia's kite is red."),
  asked(
    "Extract name, age and city as JSON: Nora is 34 years old, lives in Lisbon and works as a baker.",
    '{"name": "Nora", "age": 34, "city": "Lisbon"}',
  ),
  asked(
    'Reply with JSON like {"who": string, "when": string}: Meet Felix on Friday at 4 o\'clock in Oslo.',
    '{"who": "Felix", "when": "Friday"}',
  ),
  asked(`Summarise this report in one sentence per section.\n\n${report}`, summary),
  asked(
    `Merge these summaries into one.\n\nSummary 1: ${summary}\n\nSummary 2: Costs fell by 3 percent.`,
    `${summary} Costs fell by 3 percent.`,
  ),
  {
    messages: [
      { role: "user", content: "My name is Zora." },
      { role: "assistant", content: "Nice to meet you, Zora!" },
      { role: "user", content: "What is 7 + 5?" },
      { role: "assistant", content: "7 + 5 = 12" },
      { role: "user", content: "List two colours." },
      { role: "assistant", content: "1. red\n2. blue" },
      { role: "user", content: "What is my name?" },
    ],
    answer: "Your name is Zora.",
  },
  {
    messages: [
      weatherAsked,
      {
        role: "assistant",
        content: null,
        tool_calls: [{ id: "call_1", type: "function", function: weatherCall }],
      },
      { role: "tool", tool_call_id: "call_1", content: '{"temperature": 18, "sky": "cloudy"}' },
    ],
    tools: [weatherTool],
    answer: "It is 18 degrees and cloudy in Zurich.",
  },
];

async function answerTo({ messages, tools }: Question): Promise<string | null> {
  const completion = await client.chat.completions.create({
    model: "demo",
    messages: [...messages],
    ...(tools === undefined ? {} : { tools }),
  });
  expect(completion.choices[0]!.finish_reason).toBe("stop");
  return completion.choices[0]!.message.content;
}

test("twenty questions, one by one and all at once, from a cold cache and a warm one", async () => {
  expect(questions).toHaveLength(20);
  for (const question of questions) {
    expect([question.messages.at(-1)!.content, await answerTo(question)]).toEqual([
      question.messages.at(-1)!.content,
      question.answer,
    ]);
  }
  const crowd = [...questions, ...questions, ...questions, ...questions];
  expect(await Promise.all(crowd.map(answerTo))).toEqual(crowd.map(({ answer }) => answer));
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
    asking.map(({ question, answer }) => answerTo(asked(`${longText} ${question}`, answer))),
  );
  expect(answers).toEqual(asking.map(({ answer }) => answer));
}, 60_000);
