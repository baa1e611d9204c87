/** Whole program with encoders: vectors with prompts, scores of pairs, and refusals. */
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { encoderFile, encoderFolder, expectedOfEncoder, qwen3Reranker } from "../reference/encoders.ts";
import { Program } from "./program.ts";
import { demoFolder } from "./server.ts";

setDefaultTimeout(60_000); // milliseconds, for a busy machine

type Json = Readonly<Record<string, unknown>>;

interface Answer {
  readonly status: number;
  readonly body: Json;
}

/** Serves a model while `use` runs; `post` sends it a body. */
async function serving(
  name: string,
  use: (post: (path: string, body: Json) => Promise<Answer>) => Promise<void>,
  models: readonly string[] = [encoderFolder(name)],
): Promise<void> {
  const options = ["--device", "cpu", "--dtype", "f32", "--port", "0", "--threads", "2"];
  const program = Program.bunting(["serve", ...models, ...options]);
  try {
    const base = await program.url();
    await use(async (path, body) => {
      const headers = { "content-type": "application/json" };
      const response = await fetch(`${base}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
      return { status: response.status, body: (await response.json()) as Json };
    });
  } finally {
    program.signal("SIGTERM");
    await program.exitCode();
  }
}

function vectorsIn({ body }: Answer): number[][] {
  return (body.data as { embedding: number[] }[]).map(({ embedding }) => embedding);
}

function expectNear(vector: readonly number[], wanted: readonly number[]): void {
  expect(vector).toHaveLength(wanted.length);
  for (const [i, value] of vector.entries()) expect(Math.abs(value - wanted[i]!)).toBeLessThan(1e-4);
}

describe("an encoder", () => {
  const { texts, vectors, query } = expectedOfEncoder("bert-mean");

  test("embeds texts on every wire format, and writes none", async () => {
    await serving("bert-mean", async (post) => {
      const all = vectorsIn(await post("/v1/embeddings", { input: texts }));
      for (const [i, vector] of all.entries()) expectNear(vector, vectors![i]!);

      const ollama = await post("/api/embed", { model: "bert-mean", input: texts.slice(0, 2) });
      for (const [i, vector] of (ollama.body.embeddings as number[][]).entries())
        expectNear(vector, vectors![i]!);
      const llama = await post("/embedding", { content: texts[0]! });
      expectNear((llama.body as unknown as { embedding: number[][] }[])[0]!.embedding[0]!, vectors![0]!);

      const few = await post("/v1/embeddings", {
        input: texts[0]!,
        dimensions: 4,
        encoding_format: "base64",
      });
      const [{ embedding }] = few.body.data as [{ embedding: string }];
      const bytes = Buffer.from(embedding, "base64");
      const floats = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
      const first = vectors![0]!.slice(0, 4);
      expectNear(
        [...floats],
        first.map((value) => value / Math.hypot(...first)),
      );

      const chat = await post("/v1/chat/completions", { messages: [{ role: "user", content: "Hello." }] });
      expect(chat.status).toBe(400);
      expect(chat.body.error).toMatchObject({
        message: expect.stringContaining("this model writes no text"),
      });
      const score = await post("/v1/rerank", { query: "a", documents: ["b"] });
      expect(score.body.error).toMatchObject({ message: expect.stringContaining("no classifier of pairs") });
    });
  });

  test("puts the prompts of its files before texts", async () => {
    await serving("bert-mean", async (post) => {
      const ask = async (fields: Json) => await post("/v1/embeddings", { input: texts[0]!, ...fields });
      const [named, typed] = [await ask({ prompt_name: "query" }), await ask({ input_type: "query" })];
      expectNear(vectorsIn(named)[0]!, query!);
      expectNear(vectorsIn(typed)[0]!, query!);
      const passage = vectorsIn(await ask({ input_type: "passage" }));
      expect(passage).toEqual(vectorsIn(await ask({ prompt_name: "document" })));

      const refused = async (fields: Json) => (await ask(fields)).body.error;
      expect(await refused({ prompt_name: "code" })).toMatchObject({
        message: expect.stringContaining("one of query, document, the prompts of this model"),
      });
      expect(await refused({ prompt_name: "query", input: [[5, 6]] })).toMatchObject({
        message: "a prompt goes before texts, and input has tokens",
      });
      expect(await refused({ prompt_name: "query", input_type: "query" })).toMatchObject({
        param: "input_type",
      });
    });
  });

  test("embeds an empty text, and names one that is too long", async () => {
    await serving("bert-mean", async (post) => {
      const [empty, alone] = [
        await post("/v1/embeddings", { input: ["", texts[0]!] }),
        await post("/v1/embeddings", { input: texts[0]! }),
      ];
      expect(vectorsIn(empty)[1]).toEqual(vectorsIn(alone)[0]!);
      expect(Math.hypot(...vectorsIn(empty)[0]!)).toBeCloseTo(1, 5);
      const long = await post("/v1/embeddings", { input: ["a", "a ".repeat(400)] });
      expect(long.status).toBe(400);
      expect(long.body.error).toMatchObject({
        param: "input[1]",
        message: expect.stringMatching(/402 .*300|300 .*402/),
      });
    });
  });
});

test("an encoder and a model that writes are served beside each other", async () => {
  const { texts, vectors } = expectedOfEncoder("bert-mean");
  const models = ["--model", `writer=${demoFolder}`, "--model", `bert=${encoderFolder("bert-mean")}`];
  await serving(
    "bert-mean",
    async (post) => {
      const [embedded, written] = await Promise.all([
        post("/v1/embeddings", { model: "bert", input: texts }),
        post("/v1/completions", { model: "writer", prompt: [5, 6, 7], max_tokens: 8, ignore_eos: true }),
      ]);
      for (const [i, vector] of vectorsIn(embedded).entries()) expectNear(vector, vectors![i]!);
      expect(written.body.usage).toMatchObject({ completion_tokens: 8 });
      const refused = await post("/v1/completions", { model: "bert", prompt: "a" });
      expect(refused.body.error).toMatchObject({ message: expect.stringContaining("writes no text") });
    },
    models,
  );
});

interface Scorer {
  readonly path: string;
  readonly pairs: readonly [string, string][];
  readonly scores: readonly number[];
}

function scorer(name: string, path: string): [string, Scorer] {
  const { pairs, scores } = expectedOfEncoder(name);
  return [name + (path.endsWith(".gguf") ? " in a GGUF file" : ""), { path, pairs: pairs!, scores: scores! }];
}

const scorers: [string, Scorer][] = [
  ...["bert-score", "xlm-roberta-score", "modern-bert-score"].map((name) =>
    scorer(name, encoderFolder(name)),
  ),
  scorer("xlm-roberta-score", encoderFile("xlm-roberta-score")!),
  [
    "a reranker of Qwen3's kind in a GGUF file",
    { path: qwen3Reranker().file, pairs: qwen3Reranker().pairs, scores: qwen3Reranker().scores },
  ],
];

test.each(scorers)("%s scores pairs, and writes no text", async (_, { path, pairs, scores }) => {
  const use = async (post: (path: string, body: Json) => Promise<Answer>): Promise<void> => {
    const scored = await post("/v1/score", {
      text_1: pairs.map(([a]) => a),
      text_2: pairs.map(([, b]) => b),
    });
    const got = (scored.body.data as { score: number }[]).map(({ score }) => score);
    for (const [i, score] of got.entries()) expect(score).toBeCloseTo(scores[i]!, 5);

    const [query] = pairs[0]!;
    const documents = pairs.slice(0, 2).map(([, document]) => document);
    const { results } = (await post("/v1/rerank", { query, documents })).body as {
      results: { index: number; relevance_score: number }[];
    };
    for (const { index, relevance_score } of results) expect(relevance_score).toBeCloseTo(scores[index]!, 5);
    expect(results[0]!.relevance_score).toBeGreaterThanOrEqual(results[1]!.relevance_score);

    const chat = await post("/v1/chat/completions", { messages: [{ role: "user", content: "Hi" }] });
    expect(chat).toMatchObject({
      status: 400,
      body: { error: { message: expect.stringContaining("writes no text") } },
    });
  };
  await serving("", use, [path]);
});
