import { expect, test } from "bun:test";
import { answeredFacts } from "../../tests/support/request-facts.ts";
import { requestTable, waterfall } from "./why.ts";

const record = { ...answeredFacts, behind: { request: null, ms: 150 } };

test("a waterfall has a bar for each cause, where the one before it ends", () => {
  expect(waterfall(record)).toBe(`req_1  /v1/chat/completions  demo  answered
400.0 ms in all, first token after 300.0 ms; 100 prompt tokens (55 cached, 5 from the host's memory, 20 from disk), 12 generated

before the queue
  reading                 1.0 ms   0.3 %  █                                 receiving and parsing the request
  tokenizing              4.0 ms   1.0 %  █                                 rendering the chat template and making tokens
waiting for
  memory                195.0 ms  48.8 %  ████████████████                  KV pages to become free
prompt
  prompt                 98.0 ms  24.5 %                  ████████          its own prompt
answer
  decode                 80.0 ms  20.0 %                          ██████    its own tokens, as if it were alone
  decode_prompts         22.0 ms   5.5 %                                ██  prompts of others in the same steps

Waited longest behind the prompt of another key's request (150.0 ms).
Tokens after their target: 1, by 2.5 ms together.
3 of 4 drafted tokens were right.`);
});

test("a list names the cause that took most", () => {
  expect(requestTable([record])).toBe(`request  at (UTC)   ms  first  tokens  status    mostly
req_1    14:13:20  400    300      12  answered  memory 49 %`);
});
