/** Use of keys: on every wire format, by key, and up to a quota. */
import { afterEach, expect, test } from "bun:test";
import { tenantOfKey, UsageLedger } from "../../server/usage/ledger.ts";
import { chatBody, post, startTestServer, type TestServer, type TestServerOptions } from "./server.ts";
import { byPath } from "./wires.ts";

let server: TestServer;
afterEach(async () => {
  await server.settled();
  await server.close();
});

function start(options: TestServerOptions = {}): void {
  server = startTestServer({ stepMs: 1, answers: ["It is sunny in the whole city today."], ...options });
}

interface Result {
  readonly input_tokens: number;
  readonly input_cached_tokens: number;
  readonly output_tokens: number;
  readonly num_model_requests: number;
  readonly api_key_id: string | null;
  readonly bunting: {
    readonly computed_tokens: number;
    readonly device_ms: number;
    readonly answered: number;
  };
}

const withKey = (key: string) => ({ headers: { authorization: `Bearer ${key}` } });

async function usage(key: string, query = ""): Promise<readonly Result[]> {
  const response = await fetch(`${server.origin}/v1/usage${query}`, withKey(key));
  expect(response.status).toBe(200);
  const { data } = (await response.json()) as {
    readonly data: readonly { readonly results: readonly Result[] }[];
  };
  return data.flatMap(({ results }) => results);
}

test.each(byPath)("%s counts its tokens for its key", async (path, wire) => {
  start({ keys: { keys: ["red", "blue"] } });
  const response = await post(server, path, wire.body({ content: "Rome?", max: 4 }), withKey("red"));
  const { promptTokens, tokens } = wire.said(await response.json());
  await server.settled();
  const [own] = await usage("red");
  expect(own).toMatchObject({ input_tokens: promptTokens, output_tokens: tokens, num_model_requests: 1 });
  expect(own!.bunting).toMatchObject({ computed_tokens: promptTokens, answered: 1 });
  expect(own!.bunting.device_ms).toBeGreaterThan(0);
  expect(await usage("blue")).toEqual([]);
});

test("embeddings count, and an operator sees all keys", async () => {
  start({ keys: { keys: ["red", "blue"], adminKeys: ["boss"] } });
  for (const key of ["red", "blue"])
    await (await post(server, "/v1/embeddings", { model: "demo", input: "Rome" }, withKey(key))).text();
  const all = await usage("boss");
  expect(all.map((one) => one.api_key_id).toSorted()).toEqual(
    ["red", "blue"].map((key) => tenantOfKey(key).slice(0, 16)).toSorted(),
  );
  expect(all.every((one) => one.input_tokens > 0)).toBe(true);
});

test("a key beyond its quota is refused with the time when it ends, on every route; others go on", async () => {
  start({
    keys: { keys: ["red", "blue"] },
    ledger: new UsageLedger(null, [{ tenant: tenantOfKey("red"), tokensPerDay: 5 }]),
  });
  const body = chatBody("Rome?", { max_tokens: 4 });
  expect((await post(server, "/v1/chat/completions", body, withKey("red"))).status).toBe(200);
  await server.settled();
  for (const [path, wire] of byPath) {
    const refused = await post(server, path, wire.body({ content: "Rome?", max: 4 }), withKey("red"));
    expect([path, refused.status]).toEqual([path, 429]);
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(await refused.text()).toContain("its quota is 5 a day");
  }
  expect((await post(server, "/v1/chat/completions", body, withKey("blue"))).status).toBe(200);
  expect((await usage("red"))[0]!.num_model_requests).toBe(1);
});

test("a number of days that is none is refused", async () => {
  start();
  for (const days of ["0", "367", "x"]) {
    const response = await fetch(`${server.origin}/v1/usage?days=${days}`);
    expect([days, response.status]).toEqual([days, 400]);
  }
});
