/**
 * Whole program on the CPU engine with the embedded model: HTTP stays responsive while steps are computed.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import OpenAI from "openai";
import { Program } from "./program.ts";

let program: Program;
let url: string;
let client: OpenAI;

beforeAll(async () => {
  program = Program.bunting(["serve", "--device", "cpu", "--port", "0", "--threads", "1"]);
  url = await program.url();
  client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
}, 60_000);
afterAll(async () => {
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);
});

const messages = [{ role: "user" as const, content: "Who are you?" }];

test("greedy answers are the same whole, streamed, and in company", async () => {
  const request = { model: "demo", messages, temperature: 0, max_tokens: 24 };
  const alone = (await client.chat.completions.create(request)).choices[0]!.message.content;
  expect(alone).not.toBe("");
  const streamed = async () => {
    let text = "";
    for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
      text += chunk.choices[0]!.delta.content ?? "";
    }
    return text;
  };
  const company = client.chat.completions.create({
    ...request,
    messages: [{ role: "user", content: "Other" }],
    n: 3,
  });
  expect(await Promise.all([streamed(), streamed(), streamed()])).toEqual([alone!, alone!, alone!]);
  expect((await company).choices).toHaveLength(3);
});

test("/health answers within 50 ms while steps run", async () => {
  const isOver = { yes: false };
  const load = Promise.all(
    Array.from({ length: 16 }, (_, i) =>
      client.chat.completions.create({
        model: "demo",
        messages: [{ role: "user", content: `${i} and a long prompt `.repeat(40) }],
        max_tokens: 100,
        ...({ ignore_eos: true } as object),
      }),
    ),
  ).finally(() => {
    isOver.yes = true;
  });
  const latenciesMs: number[] = [];
  while (!isOver.yes && latenciesMs.length < 200) {
    const startMs = performance.now();
    const response = await fetch(`${url}/health`);
    await response.text();
    latenciesMs.push(performance.now() - startMs);
  }
  await load;
  latenciesMs.sort((a, b) => a - b);
  const medianMs = latenciesMs[latenciesMs.length >> 1]!;
  expect(latenciesMs.length).toBeGreaterThanOrEqual(10);
  expect(medianMs).toBeLessThan(50);
}, 60_000);
