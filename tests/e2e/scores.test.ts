/** Scores of pairs of texts over HTTP. */

import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { loadTokenizer } from "../../text/tokenizer.ts";
import { demoFolder, post, startTestServer, type TestServer } from "./server.ts";

const scoreWeights = Float32Array.from({ length: 24 }, (_, i) => Math.sin(i));
const template =
  "{% for message in messages %}{% if message.role == 'query' %}Q: {{ message.content }}\n" +
  "{% elif message.role == 'document' %}D: {{ message.content }}\n{% endif %}{% endfor %}A:";
const query = "Which animal barks?";
const documents = ["A cat says miaow.", "A dog barks.", "Two and two are four."];

let server: TestServer;
beforeAll(() => {
  server = startTestServer({ scoreWeights });
});
afterEach(() => server.settled());
afterAll(() => server.close());

interface Reranked {
  readonly results: readonly {
    readonly index: number;
    readonly relevance_score: number;
    readonly document?: { readonly text: string };
  }[];
  readonly usage: { readonly prompt_tokens: number };
}

interface Scored {
  readonly data: readonly { readonly index: number; readonly score: number }[];
}

async function bodyOf<Body>(path: string, body: object, of = server): Promise<Body> {
  const response = await post(of, path, { model: "demo", ...body });
  expect(response.status).toBe(200);
  return (await response.json()) as Body;
}

test("documents come by falling score, each with its place and text", async () => {
  const { results, usage } = await bodyOf<Reranked>("/v1/rerank", { query, documents });
  const scores = results.map(({ relevance_score: score }) => score);
  expect(scores).toEqual([...scores].sort((a, b) => b - a));
  expect(new Set(scores).size).toBe(3);
  for (const score of scores) expect(score > 0 && score < 1).toBe(true);
  expect(results.map(({ index }) => index).sort()).toEqual([0, 1, 2]);
  for (const { index, document } of results) expect(document).toEqual({ text: documents[index]! });
  expect(usage.prompt_tokens).toBeGreaterThan(20);
});

test("the best few, documents as objects, and without their texts", async () => {
  const all = await bodyOf<Reranked>("/rerank", { query, documents, return_documents: false });
  const asked = { query, documents: documents.map((text) => ({ text })), top_n: 2, return_documents: false };
  const best = await bodyOf<Reranked>("/v1/rerank", asked);
  expect(best.results).toEqual(all.results.slice(0, 2));
  expect(best.results.every((one) => !("document" in one))).toBe(true);
});

test("scores of pairs are those of the ranking", async () => {
  const { results } = await bodyOf<Reranked>("/v1/rerank", { query, documents });
  const byIndex = [...results].sort((a, b) => a.index - b.index).map(({ relevance_score: score }) => score);
  const one = await bodyOf<Scored>("/v1/score", { text_1: query, text_2: documents });
  expect(one.data.map(({ score }) => score)).toEqual(byIndex);
  const pairs = await bodyOf<Scored>("/v1/score", { text_1: documents.map(() => query), text_2: documents });
  expect(pairs.data.map(({ score }) => score)).toEqual(byIndex);
});

test("a template that knows a query and a document writes them", async () => {
  const templated = startTestServer({ scoreWeights, template });
  const { usage } = await bodyOf<Reranked>(
    "/v1/rerank",
    { query, documents: documents.slice(0, 1) },
    templated,
  );
  const text = `Q: ${query}\nD: ${documents[0]}\nA:`;
  const options = { addSpecialTokens: false, parseControlText: false };
  expect(usage.prompt_tokens).toBe(loadTokenizer(demoFolder).encode(text, options).length);
  await templated.settled();
  await templated.close();
});

test("what cannot be scored is refused with field and value", async () => {
  const refused: [path: string, body: object, param: string][] = [
    ["/v1/rerank", { documents }, "query"],
    ["/v1/rerank", { query }, "documents"],
    ["/v1/rerank", { query, documents: [] }, "documents"],
    ["/v1/rerank", { query, documents: [1] }, "documents[0]"],
    ["/v1/rerank", { query, documents, top_n: -1 }, "top_n"],
    ["/v1/score", { text_1: ["a", "b"], text_2: ["c"] }, "text_1"],
    ["/v1/score", { text_1: "a" }, "text_2"],
  ];
  for (const [path, body, param] of refused) {
    const response = await post(server, path, body);
    const { error } = (await response.json()) as { error: { param: string } };
    expect([path, response.status, error.param]).toEqual([path, 400, param]);
  }
});
