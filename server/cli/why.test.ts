import { expect, test } from "bun:test";
import type { RequestFacts } from "../explain/request-facts.ts";
import { requestTable, waterfall } from "./why.ts";

const record: RequestFacts = {
  id: "req_1",
  model: "demo",
  route: "/v1/chat/completions",
  status: "answered",
  error: null,
  created: 1_790_000_000,
  total_ms: 400,
  first_token_ms: 300,
  causes: { reading: 1, memory: 199, prompt: 100, decode: 80, decode_prompts: 20 },
  first_token_causes: { reading: 1, memory: 199, prompt: 100 },
  tokens: {
    prompt: 100,
    found: { memory: 80, host: 0, disk: 0 },
    computed: 20,
    generated: 12,
    recomputed: 0,
    drafts: { checked: 4, right: 3 },
  },
  late: { tokens: 0, ms: 0 },
  preemptions: 0,
  engines: [0],
  choices: 1,
  behind: { request: null, ms: 150 },
  same_prefix_of: null,
};

test("a waterfall has a bar for each cause, where the one before it ends", () => {
  expect(waterfall(record)).toBe(`req_1  /v1/chat/completions  demo  answered
400.0 ms in all, first token after 300.0 ms; 100 prompt tokens (80 cached), 12 generated

before the queue
  reading                 1.0 ms   0.3 %  █                                 receiving and parsing the request
waiting for
  memory                199.0 ms  49.8 %  ████████████████                  KV pages to become free
prompt
  prompt                100.0 ms  25.0 %                  ████████          its own prompt
answer
  decode                 80.0 ms  20.0 %                          ██████    its own tokens, as if it were alone
  decode_prompts         20.0 ms   5.0 %                                ██  prompts of others in the same steps

Waited longest behind the prompt of another key's request (150.0 ms).
3 of 4 drafted tokens were right.`);
});

test("a list names the cause that took most", () => {
  expect(requestTable([record])).toBe(`request  at (UTC)   ms  first  tokens  status    mostly
req_1    14:13:20  400    300      12  answered  memory 50 %`);
});
