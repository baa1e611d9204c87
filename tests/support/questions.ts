/**
 * Twenty questions over all skills of the embedded model, each with its exact greedy answer. A bug in
 * attention, paging, caching, templates or sampling shows as a wrong word.
 */
import type OpenAI from "openai";
import type { ChatCompletionMessageParam, ChatCompletionTool } from "openai/resources/chat/completions";

export interface Question {
  readonly messages: readonly ChatCompletionMessageParam[];
  readonly tools?: ChatCompletionTool[];
  readonly answer: string;
}

export const asked = (content: string, answer: string): Question => ({
  messages: [{ role: "user", content }],
  answer,
});

export const weatherTool: ChatCompletionTool = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Get the weather in a city",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};
export const weatherAsked: ChatCompletionMessageParam = {
  role: "user",
  content: "What is the weather in Zurich?",
};
export const weatherCall = { name: "get_weather", arguments: '{"city": "Zurich"}' };

const report = `Monthly report

Sales
In March, sales rose by 12 percent. Everyone is happy with this.

Staff
Three people joined the team after the fair in Lyon. The details are in the appendix.`;
const summary = "Sales rose by 12 percent. Three people joined the team.";

export const questions: readonly Question[] = [
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

/** Returns the embedded model's answer; throws if it does not end by itself. */
export async function answerTo(client: OpenAI, { messages, tools }: Question): Promise<string | null> {
  const completion = await client.chat.completions.create({
    model: "demo",
    messages: [...messages],
    ...(tools === undefined ? {} : { tools }),
  });
  const { finish_reason, message } = completion.choices[0]!;
  if (finish_reason !== "stop") throw new Error(`the answer ends with ${finish_reason}`);
  return message.content;
}
