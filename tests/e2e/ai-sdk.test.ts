/**
 * AI SDK of Vercel with its provider for OpenAI-compatible servers, which validates every chunk against a
 * schema.
 */
import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, streamText } from "ai";
import { startTestServer, type TestServer } from "./server.ts";

let server: TestServer;
let provider: ReturnType<typeof createOpenAICompatible>;
beforeAll(() => {
  server = startTestServer();
  provider = createOpenAICompatible({ name: "bunting", baseURL: `${server.origin}/v1`, includeUsage: true });
});
afterEach(() => server.settled());
afterAll(() => server.close());

const request = { prompt: "Tell me something", maxOutputTokens: 30, seed: 7, maxRetries: 0 };

test("generateText and streamText give the same text and usage", async () => {
  const whole = await generateText({ model: provider("demo"), system: "Be brief.", ...request });
  const streamed = streamText({ model: provider("demo"), system: "Be brief.", ...request });
  let text = "";
  for await (const part of streamed.textStream) text += part;
  expect(text).toBe(whole.text);
  expect(text).not.toBe("");
  expect(await streamed.finishReason).toBe(whole.finishReason);
  const usage = await streamed.usage;
  expect(usage.outputTokens).toBe(whole.usage.outputTokens!);
  expect(usage.inputTokens).toBe(whole.usage.inputTokens!);
  expect(usage.inputTokenDetails.cacheReadTokens).toBeGreaterThan(0);
});

test("a conversation with several turns and parts is accepted", async () => {
  const { text, finishReason } = await generateText({
    model: provider("demo"),
    messages: [
      {
        role: "user",
        content: [
          { type: "text", text: "One" },
          { type: "text", text: "Two" },
        ],
      },
      { role: "assistant", content: "Three" },
      { role: "user", content: "Four" },
    ],
    maxOutputTokens: 5,
    stopSequences: ["\n\n"],
    temperature: 0.5,
    topP: 0.9,
    maxRetries: 0,
  });
  expect(text).toBeString();
  expect(["length", "stop"]).toContain(finishReason);
});

test("a text completion streams", async () => {
  const streamed = streamText({ model: provider.completionModel("demo"), ...request });
  let text = "";
  for await (const part of streamed.textStream) text += part;
  expect(text).not.toBe("");
});

test("an error reaches the caller with its message and status", async () => {
  const failed = await generateText({ model: provider("gpt-9"), ...request }).catch(
    (error: unknown) => error,
  );
  expect(APICallError.isInstance(failed)).toBe(true);
  const error = failed as APICallError;
  expect(error.statusCode).toBe(404);
  expect(error.message).toContain('the model "gpt-9" does not exist');
});

test("an error in a stream reaches its reader", async () => {
  const failed: unknown[] = [];
  const streamed = streamText({
    model: provider("demo"),
    ...request,
    prompt: "word ".repeat(2100),
    onError: ({ error }) => {
      failed.push(error);
    },
  });
  await streamed.consumeStream();
  expect((failed[0] as APICallError).message).toContain("maximum context length");
});
