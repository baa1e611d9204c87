/** Agents SDK of OpenAI, over the Responses API (its default) and over chat completions. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import {
  Agent,
  OpenAIChatCompletionsModel,
  OpenAIResponsesModel,
  Runner,
  setTracingDisabled,
  tool,
} from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";
import { startTestServer, type TestServer } from "../../e2e/server.ts";
import { wordsFor } from "../words.ts";

let server: TestServer;
beforeAll(() => {
  setTracingDisabled(true);
  server = startTestServer({ answers: wordsFor });
});
afterEach(() => server.settled());
afterAll(() => server.close());

describe.each([["Responses"], ["chats"]])("by %s", (api) => {
  const modelOf = () => {
    const client = new OpenAI({ baseURL: `${server.origin}/v1`, apiKey: "none", maxRetries: 0 });
    return api === "chats"
      ? new OpenAIChatCompletionsModel(client as never, "demo")
      : new OpenAIResponsesModel(client as never, "demo");
  };
  const runner = new Runner();
  const asked: string[] = [];
  const getWeather = tool({
    name: "get_weather",
    description: "The weather of a place",
    parameters: z.object({ location: z.string() }),
    execute: ({ location }) => {
      asked.push(location);
      return "sunny";
    },
  });
  const question = "What is the weather like in San Francisco?";
  const answer = "The tool has answered: sunny.";

  test("an answer is held to a schema", async () => {
    const outputType = z.object({ setup: z.string(), punchline: z.string() });
    const agent = new Agent({ name: "a", model: modelOf(), outputType });
    const { finalOutput } = await runner.run(agent, "Tell me a joke about cats.");
    expect(finalOutput!.punchline).toContain("mouse");
  });

  test("a tool is called, and its result read, whole and as a stream", async () => {
    const agent = new Agent({ name: "a", instructions: "Be brief.", model: modelOf(), tools: [getWeather] });
    expect((await runner.run(agent, question)).finalOutput).toBe(answer);
    const streamed = await runner.run(agent, question, { stream: true });
    let text = "";
    for await (const part of streamed.toTextStream()) text += part;
    await streamed.completed;
    expect([text, streamed.finalOutput]).toEqual([answer, answer]);
    expect(asked.splice(0)).toEqual(["San Francisco, CA", "San Francisco, CA"]);
  });

  test("a refusal reaches the caller with its status", async () => {
    const agent = new Agent({ name: "a", model: modelOf() });
    const failed = await runner.run(agent, "Hey ".repeat(5000)).catch((error: unknown) => error);
    expect((failed as { readonly status: number }).status).toBe(400);
  });
});
