/** Drafts on the CPU engine: answers are the same bits with and without, under constraints too. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { Program } from "./program.ts";

const sources = ["auto", "off"] as const;
const programs: Program[] = [];
const urls: string[] = [];

beforeAll(async () => {
  const options = ["--device", "cpu", "--port", "0", "--threads", "1"];
  for (const speculate of sources) {
    const program = Program.bunting(["serve", ...options, "--speculate", speculate]);
    programs.push(program);
    urls.push(await program.url());
  }
}, 60_000);
afterAll(async () => {
  for (const program of programs) program.signal("SIGTERM");
  for (const program of programs) expect(await program.exitCode()).toBe(0);
});

interface Message {
  readonly content: string | null;
  readonly tool_calls?: readonly { readonly function: unknown }[];
}

const record = {
  type: "object",
  properties: { id: { type: "integer" }, kind: { enum: ["bird", "cat", "dog"] } },
};
const schema = {
  type: "array",
  minItems: 8,
  items: { ...record, required: ["id", "kind"], additionalProperties: false },
};
const tool = {
  name: "note",
  parameters: { type: "object", properties: { lines: { type: "array", items: { enum: ["one", "two"] } } } },
};
const variants: readonly object[] = [
  {},
  { temperature: 1 },
  { guided_regex: "(one|two|three)( (one|two|three))*" },
  { guided_regex: "(one|two|three)( (one|two|three))*", temperature: 1, presence_penalty: 0.5 },
  { response_format: { type: "json_schema", json_schema: { name: "records", schema } } },
  {
    response_format: { type: "json_schema", json_schema: { name: "records", schema } },
    temperature: 1,
    min_tokens: 60,
  },
  { response_format: { type: "json_object" }, temperature: 0.7 },
  { tools: [{ type: "function", function: tool }], tool_choice: "required", temperature: 0.7 },
];

test("answers are the same with drafts and without, under constraints too", async () => {
  let accepted = 0;
  const ask = async (url: string, more: object): Promise<unknown> => {
    const messages = [
      { role: "user", content: "Count: one two three one two three one two three one two three" },
    ];
    const body = {
      messages,
      max_tokens: 120,
      seed: 5,
      temperature: 0,
      logprobs: true,
      timings_per_token: true,
      ...more,
    };
    const headers = { "content-type": "application/json" };
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers,
      body: JSON.stringify(body),
    });
    const { choices, timings } = (await response.json()) as {
      choices: { message: Message; finish_reason: string; logprobs: unknown }[];
      timings: { draft_n_accepted?: number };
    };
    const { message, finish_reason, logprobs } = choices[0]!;
    accepted += timings.draft_n_accepted ?? 0;
    const calls = message.tool_calls?.map((call) => call.function);
    return { content: message.content, calls, finish_reason, logprobs };
  };
  for (const more of variants) {
    const [drafted, plain] = [await ask(urls[0]!, more), await ask(urls[1]!, more)];
    expect(drafted).toEqual(plain);
  }
  expect(accepted).toBeGreaterThan(40);
}, 60_000);
