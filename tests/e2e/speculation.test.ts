/** Speculation as clients see it: the same answers in fewer steps, fields, timings and metrics. */
import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { bodyOf, chatBody, post, startTestServer, type TestServer } from "./server.ts";

const poem = "The quick brown fox jumps over the lazy dog, and the lazy dog lets the quick brown fox jump. ";
const answers = (): readonly string[] => [poem.repeat(4)];

let server: TestServer;
let without: TestServer;
beforeAll(() => {
  server = startTestServer({ answers, answersToAny: true });
  without = startTestServer({ answers, answersToAny: true, engine: { drafts: { kind: "off" } } });
});
afterEach(() => server.settled());
afterAll(async () => {
  await server.close();
  await without.close();
});

interface Timings {
  readonly draft_n?: number;
  readonly draft_n_accepted?: number;
}

/** The parts of an answer that do not tell times or drafts. */
async function answerOf(to: TestServer, more: object) {
  const response = await post(to, "/v1/chat/completions", {
    ...chatBody(`Repeat: ${poem}`, { max_tokens: 120, logprobs: true, top_logprobs: 2 }),
    timings_per_token: true,
    ...more,
  });
  expect(response.status).toBe(200);
  const { choices, usage, timings } = (await bodyOf(response)) as unknown as {
    choices: unknown;
    usage: unknown;
    timings: Timings;
  };
  const ignored = response.headers.get("x-bunting-ignored");
  return { same: { choices, usage }, timings, ignored };
}

const variants: readonly object[] = [
  {},
  { stop: ["lazy dog, and the lazy"] },
  { stop: ["fox jump. The quick brown fox jumps over"], include_stop_str_in_output: true },
  { presence_penalty: 1, frequency_penalty: 0.5, temperature: 1, seed: 0 },
  { n: 3, temperature: 1, seed: 0 },
  { bad_words: ["zebra"] },
  { min_tokens: 100 },
  { max_tokens: 37 },
  { guided_regex: "[A-Za-z,. ]*" },
  { guided_regex: "(The (quick|slow) [a-z ,]*[.] )*", temperature: 1, seed: 3 },
];

test.each(variants)("an answer is the same with drafts and without: %j", async (more) => {
  const drafted = await answerOf(server, more);
  const plain = await answerOf(without, more);
  expect(drafted.same).toEqual(plain.same);
  expect(drafted.timings.draft_n_accepted!).toBeGreaterThan(0);
  expect(plain.timings.draft_n).toBeUndefined();
});

test.each([{ speculative: false }, { "speculative.n_max": 0 }])("%j turns drafts off", async (more) => {
  const off = await answerOf(server, more);
  expect(off.timings.draft_n).toBeUndefined();
  expect(off.ignored ?? "").not.toContain("speculative");
  expect(off.same).toEqual((await answerOf(server, {})).same);
});

test("a draft has no more tokens than are asked for, and other values are refused", async () => {
  const stepsFor = async (more: object): Promise<number> => {
    const before = server.fleet.loads()[0]!.stepsTotal;
    await answerOf(server, more);
    return server.fleet.loads()[0]!.stepsTotal - before;
  };
  const [none, one, many] = [
    await stepsFor({ speculative: false }),
    await stepsFor({ "speculative.n_max": 1 }),
    await stepsFor({ speculative: true }),
  ];
  expect(one).toBeGreaterThan(none / 2);
  expect(one).toBeLessThan(none);
  expect(many).toBeLessThan(none / 2);
  for (const more of [{ speculative: "yes" }, { "speculative.n_max": -1 }]) {
    const response = await post(server, "/v1/chat/completions", { ...chatBody("Hello"), ...more });
    expect(response.status).toBe(400);
  }
});

test("llama-server's completions tell drafts in their timings, Ollama's options take its field", async () => {
  const body = { prompt: poem, n_predict: 100 };
  const drafted = (await bodyOf(await post(server, "/completion", body))) as unknown as { timings: Timings };
  expect(drafted.timings.draft_n!).toBeGreaterThanOrEqual(drafted.timings.draft_n_accepted!);
  const before = server.fleet.loads()[0]!.draftsTotal;
  const options = { num_predict: 100, speculative: false };
  await (await post(server, "/api/generate", { model: "demo", prompt: poem, stream: false, options })).text();
  expect(server.fleet.loads()[0]!.draftsTotal).toBe(before);
});

test("metrics count drafts by vLLM's names", async () => {
  await answerOf(server, {});
  const text = await (await fetch(`${server.origin}/metrics`)).text();
  const total = (name: string): number =>
    text
      .split("\n")
      .filter((line) => line.startsWith(name))
      .reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
  const drafts = total("vllm:spec_decode_num_drafts_total");
  const tokens = total("vllm:spec_decode_num_draft_tokens_total");
  const accepted = total("vllm:spec_decode_num_accepted_tokens_total");
  expect(drafts).toBeGreaterThan(0);
  expect(tokens).toBeGreaterThanOrEqual(accepted);
  expect(accepted).toBe(total("vllm:spec_decode_num_accepted_tokens_per_pos_total"));
  expect(text).toMatch(/per_pos_total\{model_name="[^"]+",engine="0",position="0"\}/);
});
