/**
 * Limits of a single request: beyond them the server refuses with a sentence, and serves other clients
 * meanwhile.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { bodyOf, chatBody, post, startTestServer, type TestServer } from "./server.ts";

let server: TestServer;
beforeAll(() => {
  server = startTestServer({ stepMs: 0 });
});
afterAll(async () => {
  await server.settled();
  await server.close();
});

describe("an answer is refused that may hold more than", () => {
  const held =
    "an answer may hold 262144 log probabilities, those of alternatives included, but 128 choices of 1900 tokens with 20 alternatives each may hold 5107200";
  const ids = Array.from({ length: 1024 }, (_, index) => [String(index), 1]);
  test.each([
    [
      "the log probabilities that fit",
      "/v1/chat/completions",
      chatBody("x", { n: 128, max_tokens: 1900, logprobs: true, top_logprobs: 20 }),
      held,
    ],
    ["the same of a text", "/v1/completions", { prompt: "x", n: 128, max_tokens: 1900, logprobs: 20 }, held],
    [
      "the same of several prompts",
      "/v1/completions",
      { prompt: Array(128).fill("x"), max_tokens: 1900, logprobs: 20 },
      held,
    ],
    [
      "the same on llama-server's route",
      "/completion",
      { prompt: Array(128).fill("x"), n_predict: 1900, n_probs: 20 },
      held,
    ],
    [
      "what is kept of a response",
      "/v1/responses",
      { input: "x", max_output_tokens: 1900, top_logprobs: 20, include: ["message.output_text.logprobs"] },
      "an answer may hold 32768 log probabilities, those of alternatives included, but 1 choice of 1900 tokens with 20 alternatives each may hold 39900",
    ],
    [
      "its tokens",
      "/v1/completions",
      { prompt: Array(128).fill("x"), n: 10, max_tokens: 1900 },
      "an answer that is not streamed may hold 1048576 tokens, those of all choices together, but 1280 choices of 1900 tokens may hold 2432000",
    ],
    [
      "its choices",
      "/v1/completions",
      { prompt: Array(128).fill("x"), n: 17, max_tokens: 1, stream: true },
      "a request may have 2048 choices at most, those of all its prompts together, but has 2176",
    ],
    [
      "its prompts, told again",
      "/v1/completions",
      { prompt: Array(16).fill(Array(1000).fill(5)), n: 66, max_tokens: 1, echo: true, stream: true },
      "an answer may repeat 1048576 tokens of its prompts, those of all choices together, but would repeat 1056000",
    ],
    [
      "its prompts' log probabilities with each choice",
      "/v1/completions",
      { prompt: Array(1000).fill(5), n: 4, max_tokens: 1, echo: true, logprobs: 20 },
      "prompts may have 65536 log probabilities at most, tokens times alternatives and themselves, with each choice, but have 84000",
    ],
    [
      "its biases, with each choice",
      "/v1/completions",
      { prompt: Array(16).fill([5]), n: 128, max_tokens: 1, logit_bias: Object.fromEntries(ids), seed: 1 },
      "the choices of a request may carry 4194304 tokens of prompts and biases, each those of its own, but carry 4196352",
    ],
  ] as const)("%s", async (_, route, body, message) => {
    const response = await post(server, route, body);
    expect((await bodyOf(response)).error.message).toBe(message);
    expect(response.status).toBe(400);
  });
});

test("an answer without a limit of its own ends where it holds no more", async () => {
  const body = { prompt: "x", n: 64, logprobs: 4, ignore_eos: true };
  const { choices, usage } = await bodyOf(await post(server, "/v1/completions", body));
  const room = Math.floor(262_144 / (64 * 5));
  expect(choices.map(({ finish_reason }) => finish_reason)).toEqual(Array(64).fill("length"));
  expect(choices.map(({ logprobs }) => logprobs.tokens.length)).toEqual(Array(64).fill(room));
  expect(usage.completion_tokens).toBe(64 * room);
}, 60_000);

test("while a large program is added, other clients are answered", async () => {
  const calls = Array.from({ length: 3000 }, (_, i) => ({
    name: `c${i}`,
    prompt: i % 2 === 0 ? `say {{o${i}}}` : `go on {{o${i - 1}}} {{o${i}}}`,
    output: `o${i}`,
    max_tokens: 1,
  }));
  let isOver = false;
  const over = post(server, "/v1/programs", { calls }).then(async (response) => {
    const told = (await response.json()) as { readonly variables: object };
    isOver = true;
    return told;
  });
  let answered = 0;
  while (!isOver) {
    await (await fetch(`${server.origin}/health`)).text();
    answered++;
  }
  expect(Object.keys((await over).variables).length).toBe(1500);
  expect(answered).toBeGreaterThan(20);
}, 60_000);

test("while a long answer is written, other clients are answered", async () => {
  const body = chatBody("x", { n: 16, max_tokens: 700, logprobs: true, top_logprobs: 20, ignore_eos: true });
  let isWritten = false;
  const long = post(server, "/v1/chat/completions", body).then(async (response) => {
    const told = await bodyOf(response);
    isWritten = true;
    return told;
  });
  let answered = 0;
  while (!isWritten) {
    await (await fetch(`${server.origin}/health`)).text();
    answered++;
  }
  const { choices } = await long;
  expect(answered).toBeGreaterThan(1);
  for (const { logprobs } of choices) {
    expect(logprobs.content.length).toBe(700);
    for (const { top_logprobs } of logprobs.content) expect(top_logprobs.length).toBe(20);
  }
}, 60_000);
