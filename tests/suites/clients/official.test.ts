/**
 * Official clients of OpenAI and Anthropic, where they parse answers, and the AI SDK with two more of its
 * providers.
 */
import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { APICallError, generateText, Output, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { startTestServer, type TestServer } from "../../e2e/server.ts";
import { wordsFor } from "../words.ts";

let server: TestServer;
let openai: OpenAI;
let anthropic: Anthropic;
beforeAll(() => {
  server = startTestServer({ answers: wordsFor });
  openai = new OpenAI({ baseURL: `${server.origin}/v1`, apiKey: "none", maxRetries: 0 });
  anthropic = new Anthropic({ baseURL: server.origin, apiKey: "none", maxRetries: 0 });
});
afterEach(() => server.settled());
afterAll(() => server.close());

const joke = z.object({ setup: z.string(), punchline: z.string() });
const messages = [{ role: "user" as const, content: "Tell me a joke about cats." }];
const question = "What is the weather like in San Francisco?";
const answer = "The tool has answered: sunny.";
const place = z.object({ location: z.string() });

test("OpenAI's client parses an answer and a call by their schemas", async () => {
  const response_format = zodResponseFormat(joke, "joke");
  const chat = await openai.chat.completions.parse({ model: "demo", messages, response_format });
  expect(chat.choices[0]!.message.parsed!.punchline).toContain("mouse");
  const format = zodTextFormat(joke, "joke");
  const { output_parsed } = await openai.responses.parse({
    model: "demo",
    input: messages,
    text: { format },
  });
  expect(output_parsed!.punchline).toContain("mouse");
  const called = await openai.chat.completions.parse({
    model: "demo",
    messages: [{ role: "user", content: question }],
    tools: [zodFunction({ name: "get_weather", parameters: place })],
  });
  const [call] = called.choices[0]!.message.tool_calls!;
  expect<unknown>(call!.function.parsed_arguments).toEqual({ location: "San Francisco, CA" });
});

test("Anthropic's client parses an answer by its schema", async () => {
  const output_config = { format: zodOutputFormat(joke) };
  const { parsed_output } = await anthropic.messages.parse({
    model: "demo",
    max_tokens: 200,
    messages,
    output_config,
  });
  expect(parsed_output!.punchline).toContain("mouse");
});

test("Anthropic's tool runner calls a tool that is added to the conversation", async () => {
  const run = () => "sunny";
  const runner = anthropic.beta.messages.toolRunner({
    model: "demo",
    max_tokens: 200,
    messages: [{ role: "user", content: question }],
    tools: [],
  });
  const description = "The weather of a place";
  runner.addTools(betaZodTool({ name: "get_weather", description, inputSchema: place, run }));
  expect((await runner).content).toMatchObject([{ type: "text", text: answer }]);
});

test("the AI SDK by chats holds an answer to a schema", async () => {
  const chats = createOpenAICompatible({
    name: "bunting",
    baseURL: `${server.origin}/v1`,
    supportsStructuredOutputs: true,
  });
  const output = Output.object({ schema: joke });
  const told = await generateText({ model: chats("demo"), prompt: "Tell me a joke about cats.", output });
  expect(told.output.punchline).toContain("mouse");
});

test("the AI SDK by Messages: text, a tool and its result, a schema and a refusal", async () => {
  const model = createAnthropic({ baseURL: `${server.origin}/v1`, apiKey: "none" })("demo");
  const tools = {
    get_weather: tool({ description: "The weather of a place", inputSchema: place, execute: () => "sunny" }),
  };
  const asked = {
    model,
    tools,
    prompt: question,
    stopWhen: stepCountIs(3),
    maxRetries: 0,
    maxOutputTokens: 200,
  };
  expect((await generateText(asked)).text).toBe(answer);
  expect(await streamText(asked).text).toBe(answer);
  const { output } = await generateText({
    model,
    prompt: "Tell me a joke about cats.",
    maxOutputTokens: 200,
    output: Output.object({ schema: joke }),
  });
  expect(output.setup).toContain("cat");
  expect(output.punchline).toContain("mouse");
  const failed = await generateText({ ...asked, prompt: "Hey ".repeat(5000) }).catch(
    (error: unknown) => error,
  );
  expect(APICallError.isInstance(failed) && failed.statusCode).toBe(400);
});
