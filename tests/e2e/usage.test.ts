/** Use of keys: on every wire format, by key, and up to a quota. */
import { afterEach, expect, test } from "bun:test";
import { tenantOf } from "../../server/http/auth.ts";
import { KeyTotals } from "../../server/usage/key-totals.ts";
import { UsageLedger } from "../../server/usage/ledger.ts";
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
    ["red", "blue"].map((key) => tenantOf(key).slice(0, 16)).toSorted(),
  );
  expect(all.every((one) => one.input_tokens > 0)).toBe(true);
});

test("a key beyond its quota is refused with the time when it ends, on every route; others go on", async () => {
  start({
    keys: { keys: ["red", "blue"] },
    ledger: new UsageLedger(null, [{ tenant: tenantOf("red"), tokensPerDay: 5 }]),
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

test("metrics tell keys apart by label, as many as the setting says, and never by the key", async () => {
  const totals = new KeyTotals(2, (tenant) => (tenant === tenantOf("red") ? "team red" : null));
  start({
    keys: { keys: ["red", "blue", "green"], adminKeys: ["boss"] },
    ledger: new UsageLedger(null, [], totals),
  });
  for (const key of ["red", "blue", "green", "boss"])
    await (
      await post(server, "/v1/chat/completions", chatBody("Rome?", { max_tokens: 3, seed: 0 }), withKey(key))
    ).text();
  await server.settled();
  const text = await (await fetch(`${server.origin}/metrics`, withKey("boss"))).text();
  const rows = text.split("\n").filter((line) => line.startsWith("bunting_key_"));
  const blue = tenantOf("blue").slice(0, 16);
  expect(rows).toContain('bunting_key_requests_total{key="team red",outcome="answered"} 1');
  expect(rows).toContain('bunting_key_requests_total{key="other",outcome="answered"} 2');
  expect(rows).toContain(`bunting_key_tokens_total{key="${blue}",part="generated"} 3`);
  expect(rows.filter((row) => row.startsWith("bunting_key_device_seconds_total"))).toHaveLength(3);
  expect(rows.join()).not.toMatch(/"(red|blue|green|boss)"/);
});

test("metrics tell no keys apart unless asked to", async () => {
  start();
  await (await post(server, "/v1/chat/completions", chatBody("Rome?", { max_tokens: 3 }))).text();
  await server.settled();
  expect(await (await fetch(`${server.origin}/metrics`)).text()).not.toContain("bunting_key_");
});
