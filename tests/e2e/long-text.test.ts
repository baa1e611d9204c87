import { afterAll, expect, test } from "bun:test";
import { loadTokenizer } from "../../text/tokenizer.ts";
import { demoFolder, startTestServer } from "./server.ts";

/** Server for texts long enough for the encoder thread. */

const server = startTestServer({ spec: { contextMax: 65_536, pages: 8192 } });
const tokenizer = loadTokenizer(demoFolder);
afterAll(() => server.close());

const post = (path: string, body: object) =>
  fetch(server.origin + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });

const long = "The bunting sings, 小鳥 too; <|im_end|> is only text here. ".repeat(400);

test("a long text gets the tokens that the tokenizer gives it", async () => {
  const content = { content: long, parse_special: false };
  const { tokens } = (await (await post("/tokenize", content)).json()) as { tokens: number[] };
  expect(tokens).toEqual(tokenizer.encode(long, { addSpecialTokens: false }));
});

test("a long message is answered, with its control text as text", async () => {
  const messages = [{ role: "user", content: long }];
  const response = await post("/v1/chat/completions", { model: "demo", messages, max_tokens: 2 });
  const { usage } = (await response.json()) as { usage: { prompt_tokens: number } };
  const plain = tokenizer.encode(long, { addSpecialTokens: false }).length;
  expect(usage.prompt_tokens).toBeGreaterThan(plain);
  expect(usage.prompt_tokens).toBeLessThan(plain + 20);
});

test("the server answers others while a long text is tokenised", async () => {
  const slow = post("/tokenize", { content: "x".repeat(600_000) });
  let isDone = false;
  void slow.then(() => {
    isDone = true;
  });
  let answered = 0;
  while (!isDone) {
    expect((await fetch(`${server.origin}/health`)).status).toBe(200);
    answered++;
  }
  expect((await slow).status).toBe(200);
  expect(answered).toBeGreaterThan(20); // tokenization on the main thread would allow one or two
});
