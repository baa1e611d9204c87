/**
 * Embeddings over HTTP: OpenAI's own client, Ollama's forms, batches, and a model that returns embeddings
 * only.
 */

import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import OpenAI, { toFile } from "openai";
import { loadTokenizer } from "../../text/tokenizer.ts";
import { demoFolder, post, startTestServer, type TestServer } from "./server.ts";

const size = 24;
const tokenizer = loadTokenizer(demoFolder);
const tokensOf = (text: string): number[] =>
  tokenizer.encode(text, { addSpecialTokens: true, parseControlText: true });

const data = mkdtempSync(join(tmpdir(), "bunting-embeddings-"));
let server: TestServer;
let client: OpenAI;
beforeAll(() => {
  server = startTestServer({ pooling: "mean", data, stepMs: 0 });
  client = new OpenAI({ baseURL: `${server.origin}/v1`, apiKey: "none", maxRetries: 0 });
});
afterEach(() => server.settled());
afterAll(async () => {
  await server.close();
  rmSync(data, { recursive: true });
});

type Input = OpenAI.EmbeddingCreateParams["input"];

async function vectorsOf(
  input: Input,
  more: Partial<OpenAI.EmbeddingCreateParams> = {},
): Promise<number[][]> {
  const { data } = await client.embeddings.create({
    model: "demo",
    input,
    encoding_format: "float",
    ...more,
  });
  return data.map(({ embedding }) => embedding);
}

const lengthOf = (vector: readonly number[]): number => Math.hypot(...vector);

test("each text has a vector of length 1, in order and whatever form it comes in", async () => {
  const texts = ["The first text.", "Another one, which is longer than the first.", "3"];
  const alone: number[][] = [];
  for (const text of texts) alone.push(...(await vectorsOf(text)));
  for (const vector of alone) {
    expect(vector).toHaveLength(size);
    expect(lengthOf(vector)).toBeCloseTo(1, 6);
  }
  expect(new Set(alone.map(String)).size).toBe(3);
  expect(await vectorsOf(texts)).toEqual(alone);
  expect(await vectorsOf(texts.map(tokensOf))).toEqual(alone);
  expect(await vectorsOf(tokensOf(texts[1]!))).toEqual([alone[1]!]);
});

type Answered =
  | readonly { readonly embedding: readonly number[][] }[]
  | { readonly error: { readonly message: string } };

test("in llama-server's form texts among tokens are a part of one prompt", async () => {
  const kites = tokenizer.encode(" kites", { addSpecialTokens: false, continues: true });
  const [vector, other] = await vectorsOf([[5, ...kites, 7], [5]]);
  const embed = async (content: unknown) => {
    const answer = (await (await post(server, "/embedding", { content })).json()) as Answered;
    return "error" in answer ? answer.error.message : answer.map(({ embedding }) => embedding[0]);
  };
  expect(await embed([5, " kites", 7])).toEqual([vector]);
  expect(await embed([[5, { prompt_string: " kites" }, 7]])).toMatch(/content\[0\]\[1\] must be/);
  expect(await embed([[5, " kites", 7], [5]])).toEqual([vector, other]);
  expect(await embed([5, " kites", -1])).toMatch(/content\[2\] must be/);
  expect(await embed([5, "a".repeat(10_000)])).toMatch(/8192 characters at most/);
});

test("what is empty, or neither text nor tokens, is refused by its place", async () => {
  const refused = [
    ["", /input must not be empty/],
    [["", ""], /input must not be empty/],
    [[], /input must be/],
    [["a", {}], /input\[1\] must be/],
    [[5, {}], /input\[1\] must be/],
    [[5, "a"], /input\[1\] must be/],
    [{ text: "a" }, /input must be/],
  ] as const;
  for (const [input, says] of refused)
    await expect(vectorsOf(input as unknown as string)).rejects.toThrow(says);
});

test("an empty text among others has a vector of zeros, as in sentence-transformers", async () => {
  const [first, second] = await vectorsOf(["one text", "3"]);
  const zeros = Array<number>(size).fill(0);
  expect(await vectorsOf(["", "one text", "", "3"])).toEqual([zeros, first!, zeros, second!]);
  const ollama = await post(server, "/api/embed", { model: "demo", input: ["one text", ""] });
  const { embeddings } = (await ollama.json()) as { embeddings: number[][] };
  expect(embeddings[1]).toEqual(zeros);
  const llama = await post(server, "/embedding", { content: ["", "3"] });
  const answers = (await llama.json()) as { embedding: number[][] }[];
  expect(answers.map(({ embedding }) => embedding[0]![0])).toEqual([0, second![0]!]);
});

test("base64, which the client asks for by itself, has the same numbers", async () => {
  const [float] = await vectorsOf("one text");
  const { data } = await client.embeddings.create({ model: "demo", input: "one text" });
  expect(data[0]!.embedding).toEqual(float!);
  const raw = await post(server, "/embeddings", { input: "one text", encoding_format: "base64" });
  const body = (await raw.json()) as { data: [{ embedding: string }] };
  const bytes = Buffer.from(body.data[0].embedding, "base64");
  expect([...new Float32Array(bytes.buffer, bytes.byteOffset, size)]).toEqual(float!);
});

test("with fewer dimensions it has the first numbers, made length 1 again", async () => {
  const [whole] = await vectorsOf("one text");
  const [cut] = await vectorsOf("one text", { dimensions: 5 });
  const length = lengthOf(whole!.slice(0, 5));
  expect(cut).toHaveLength(5);
  cut!.forEach((value, i) => {
    expect(value).toBeCloseTo(whole![i]! / length, 5);
  });
});

test("the body is OpenAI's, with the tokens that were read", async () => {
  const input = ["a text", "and another"];
  const response = await client.embeddings.create({ model: "demo", input, dimensions: 1, user: "someone" });
  const tokens = input.reduce((sum, text) => sum + tokensOf(text).length, 0);
  expect(response as unknown).toEqual({
    object: "list",
    data: [0, 1].map((index) => ({ object: "embedding", index, embedding: [expect.any(Number)] })),
    model: "demo",
    usage: { prompt_tokens: tokens, total_tokens: tokens, prompt_tokens_details: { cached_tokens: 0 } },
  });
});

test("2,048 texts come back in order beside a chat, which is not changed by them", async () => {
  const chat = () =>
    client.chat.completions.create({
      model: "demo",
      messages: [{ role: "user", content: "Tell me something." }],
      max_tokens: 20,
      temperature: 0,
    });
  const quiet = await chat();
  const inputs = Array.from({ length: 2048 }, (_, i) => `text number ${i % 300}`);
  const [vectors, busy] = await Promise.all([vectorsOf(inputs, { dimensions: 2 }), chat()]);
  expect(busy.choices[0]!.message.content).toBe(quiet.choices[0]!.message.content);
  expect(vectors).toHaveLength(2048);
  expect(vectors.slice(300)).toEqual(vectors.slice(0, -300));
  expect(vectors.slice(0, 3)).toEqual(await vectorsOf(inputs.slice(0, 3), { dimensions: 2 }));
});

test("the tokens that were read are counted as those of requests", async () => {
  const countOf = async (): Promise<number> => {
    const text = await (await fetch(`${server.origin}/metrics`)).text();
    const lines = text.matchAll(/^bunting_work_tokens_total\{([^}]*)\} (\d+)$/gm);
    return [...lines]
      .filter(([, labels]) => labels!.includes('work="requests"'))
      .reduce((sum, [, , count]) => sum + Number(count), 0);
  };
  const before = await countOf();
  await vectorsOf(["counted once", "and twice"]);
  expect((await countOf()) - before).toBe(tokensOf("counted once").length + tokensOf("and twice").length);
});

test("what cannot be embedded is refused with field, limit and value", async () => {
  const refused: [body: object, param: string | null, text: string][] = [
    [{}, "input", "input must be a string, an array of strings"],
    [{ input: [] }, "input", "input must be a string, an array of strings"],
    [{ input: ["", ""] }, "input", "input must not be empty: it has no tokens"],
    [{ input: "" }, "input", "input must not be empty: it has no tokens"],
    [{ input: Array(2049).fill("a") }, "input", "input may hold 2048 texts at most, but holds 2049"],
    [{ input: [1, -1] }, "input[1]", "input[1] must be an integer from 0"],
    [
      { input: "a", dimensions: 25 },
      "dimensions",
      "dimensions must be an integer from 1 to 24, but 25 was given",
    ],
    [{ input: "a", encoding_format: "int8" }, "encoding_format", 'float or base64, but "int8" was given'],
    [{ input: ["a", Array(100_000).fill(1)] }, "input[1]", "tokens"],
  ];
  for (const [body, param, text] of refused) {
    const response = await post(server, "/v1/embeddings", body);
    const { error } = (await response.json()) as { error: { message: string; param: string | null } };
    expect([response.status, error.param]).toEqual([400, param]);
    expect(error.message).toContain(text);
  }
  const unknown = await post(server, "/v1/embeddings", { input: "a", model: "other" });
  expect(unknown.status).toBe(404);
});

test("a client that goes away leaves nothing behind", async () => {
  const slow = startTestServer({ stepMs: 20 });
  const leaving = new AbortController();
  const gone = fetch(`${slow.origin}/v1/embeddings`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ input: Array.from({ length: 600 }, (_, i) => `text ${i}`) }),
    signal: leaving.signal,
  }).catch((error: Error) => error.name);
  while (slow.fleet.active === 0) await new Promise((resolve) => setImmediate(resolve));
  leaving.abort();
  expect(await gone).toBe("AbortError");
  await slow.settled();
  await slow.close();
});

test("a step that fails for a text is an error of the request", async () => {
  const broken = startTestServer({
    fault: ({ chunks }) => ({
      kind: "done",
      sampled: chunks.flatMap(({ sequence, samples }) =>
        samples.map(() => ({ kind: "failed", sequence, reason: "not finite" }) as const),
      ),
      deviceMs: 1,
    }),
  });
  const response = await post(broken, "/v1/embeddings", { input: ["a", "b"] });
  expect(response.status).toBe(500);
  await broken.settled();
  await broken.close();
});

describe("Ollama's forms", () => {
  const answerTo = async (path: string, body: object): Promise<unknown> => {
    const response = await post(server, path, { model: "demo", ...body });
    expect(response.status).toBe(200);
    return response.json();
  };

  test("/api/embed has a vector for each text, /api/embeddings for one", async () => {
    const vectors = await vectorsOf(["one", "two"]);
    const counted = { model: "demo", total_duration: expect.any(Number), load_duration: 0 };
    const tokens = tokensOf("one").length;
    expect(await answerTo("/api/embed", { input: ["one", "two"] })).toEqual({
      ...counted,
      embeddings: vectors,
      prompt_eval_count: tokens + tokensOf("two").length,
    });
    expect(await answerTo("/api/embed", { input: "one", truncate: true })).toEqual({
      ...counted,
      embeddings: [vectors[0]!],
      prompt_eval_count: tokens,
    });
    expect(await answerTo("/api/embed", { input: [] })).toEqual({
      ...counted,
      embeddings: [],
      prompt_eval_count: 0,
    });
    expect(await answerTo("/api/embeddings", { prompt: "two" })).toEqual({ embedding: vectors[1]! });
  });

  test("what is wrong is a sentence", async () => {
    const response = await post(server, "/api/embed", { model: "demo", input: [1, 2] });
    expect([response.status, await response.json()]).toEqual([
      400,
      { error: expect.stringContaining("input must be a string or an array of strings") },
    ]);
  });
});

test("a batch's lines are answered as requests are", async () => {
  const inputs = ["one", ["two", "three"], "four"];
  const lines = inputs.map((input, i) =>
    JSON.stringify({
      custom_id: `line ${i}`,
      method: "POST",
      url: "/v1/embeddings",
      body: { model: "demo", input, encoding_format: "float" },
    }),
  );
  const file = await client.files.create({
    purpose: "batch",
    file: await toFile(Buffer.from(lines.join("\n")), "in.jsonl"),
  });
  const { id } = await client.batches.create({
    input_file_id: file.id,
    endpoint: "/v1/embeddings",
    completion_window: "24h",
  });
  await server.jobs!.runner.ended(id);
  const batch = await client.batches.retrieve(id);
  expect([batch.status, batch.request_counts]).toEqual(["completed", { total: 3, completed: 3, failed: 0 }]);
  const text = await (await client.files.content(batch.output_file_id!)).text();
  const answers = new Map(
    text
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line))
      .map((line) => [
        line.custom_id,
        line.response.body.data.map((one: { embedding: number[] }) => one.embedding),
      ]),
  );
  for (const [i, input] of inputs.entries()) expect(answers.get(`line ${i}`)).toEqual(await vectorsOf(input));
});

test("a model without a vocabulary projection embeds, and says so where texts are asked for", async () => {
  const headless = startTestServer({ isHeadless: true });
  expect((await post(headless, "/v1/embeddings", { input: "text" })).status).toBe(200);
  const messages = [{ role: "user", content: "Hello." }];
  for (const [path, body] of [
    ["/v1/chat/completions", { messages }],
    ["/v1/completions", { prompt: "Hello" }],
    ["/v1/messages", { messages, max_tokens: 5, model: "demo" }],
    ["/v1/responses", { input: "Hello." }],
    ["/api/chat", { model: "demo", messages, stream: false }],
  ] as const) {
    const response = await post(headless, path, body);
    expect([path, response.status]).toEqual([path, 400]);
    expect(await response.text()).toContain("this model writes no text: it gives embeddings or scores alone");
  }
  const shown = (await (await post(headless, "/api/show", { model: "demo" })).json()) as {
    capabilities: string[];
  };
  expect(shown.capabilities).toEqual(["embedding"]);
  await headless.settled();
  await headless.close();
});
