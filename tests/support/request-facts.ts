import type { RequestFacts } from "../../server/explain/request-facts.ts";

/** An answered request that waited for memory and met every kind of cached token. */
export const answeredFacts: RequestFacts = {
  id: "req_1",
  model: "demo",
  route: "/v1/chat/completions",
  status: "answered",
  error: null,
  created: 1_790_000_000,
  total_ms: 400,
  first_token_ms: 300,
  causes: { reading: 1, tokenizing: 4, memory: 195, prompt: 98, decode: 80, decode_prompts: 22 },
  first_token_causes: { reading: 1, tokenizing: 4, handing_over: 2, memory: 195, prompt: 98 },
  tokens: {
    prompt: 100,
    found: { memory: 55, host: 5, disk: 20 },
    computed: 20,
    generated: 12,
    recomputed: 0,
    drafts: { checked: 4, right: 3 },
  },
  late: { tokens: 1, ms: 2.5 },
  preemptions: 0,
  engines: [1],
  choices: 1,
  behind: { request: "req_0", ms: 150 },
  same_prefix_of: null,
};
