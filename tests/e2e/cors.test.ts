/** Pages in browsers, on a server that only this machine can reach. */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { startTestServer, type TestServer } from "./server.ts";

let server: TestServer;
beforeAll(() => {
  server = startTestServer({
    keys: { keys: ["secret"] },
    corsOrigins: ["https://chat.example", "https://*.apps.example", "https://local.example:*"],
    allowedHosts: ["bunting.home", "host.docker.internal"],
  });
});
afterAll(() => server.close());

const key = { authorization: "Bearer secret" };

async function preflight(origin: string): Promise<Response> {
  return await fetch(`${server.origin}/v1/chat/completions`, {
    method: "OPTIONS",
    headers: {
      origin,
      "access-control-request-method": "POST",
      "access-control-request-headers": "authorization,content-type",
    },
  });
}

describe("a page of an origin that is let in", () => {
  test.each([
    "https://chat.example",
    "http://localhost:3000",
    "http://127.0.0.1:5173",
    "app://",
    "app://obsidian.md",
    "vscode-webview://1a2b3c4d",
    "tauri://localhost",
    "capacitor://localhost",
    "https://a.b.apps.example",
    "https://local.example:8443",
    "https://local.example",
  ])("%s", async (origin) => {
    const allowed = await preflight(origin);
    expect(allowed.status).toBe(204);
    expect(allowed.headers.get("access-control-allow-origin")).toBe(origin);
    expect(allowed.headers.get("access-control-allow-headers")).toBe("authorization,content-type");
    expect(allowed.headers.get("access-control-allow-methods")).toContain("POST");

    const models = await fetch(`${server.origin}/v1/models`, { headers: { origin, ...key } });
    expect([models.status, models.headers.get("access-control-allow-origin")]).toEqual([200, origin]);
    const body = { model: "demo", messages: [{ role: "user", content: "x" }], max_tokens: 2, stream: true };
    const stream = await fetch(`${server.origin}/v1/chat/completions`, {
      method: "POST",
      headers: { origin, "content-type": "application/json", ...key },
      body: JSON.stringify(body),
    });
    expect(await stream.text()).toEndWith("data: [DONE]\n\n");
    expect(stream.headers.get("access-control-allow-origin")).toBe(origin);
    expect(stream.headers.get("vary")).toContain("origin");
    // A page can also read the reason of a refusal.
    const refused = await fetch(`${server.origin}/v1/models`, { headers: { origin } });
    expect([refused.status, refused.headers.get("access-control-allow-origin")]).toEqual([401, origin]);
  });
});

test.each([
  "https://evil.example",
  "https://apps.example",
  "https://evilapps.example",
  "https://a.apps.example:8443",
  "http://a.apps.example",
  "https://local.example.evil.example",
  "null",
  "file://",
  "ipfs://bafy",
])("a page from elsewhere, %s, is refused, before its request and at it", async (origin) => {
  const asked = await preflight(origin);
  expect([asked.status, asked.headers.get("access-control-allow-origin")]).toEqual([403, null]);
  const models = await fetch(`${server.origin}/v1/models`, { headers: { origin } });
  expect(models.status).toBe(403);
  expect(await models.text()).toContain(origin === "null" ? "--cors-origin null" : `--cors-origin ${origin}`);
});

test("a request with a key may carry any Origin and any Host, but no page is told that it may read the answer", async () => {
  const headers = { origin: "https://elsewhere.example", ...key };
  const models = await fetch(`${server.origin}/v1/models`, { headers });
  expect([models.status, models.headers.get("access-control-allow-origin")]).toEqual([200, null]);
  expect(
    (await fetch(`${server.origin}/v1/models`, { headers: { host: "proxy.example", ...key } })).status,
  ).toBe(200);
});

test("a host that is let in by name still needs the key, others are refused", async () => {
  const statusOf = async (path: string, host: string) =>
    (await fetch(`${server.origin}${path}`, { headers: { host } })).status;
  expect(await statusOf("/v1/models", "bunting.home")).toBe(401);
  expect(await statusOf("/health", "bunting.home:8000")).toBe(200);
  expect(await statusOf("/health", "host.docker.internal:8000")).toBe(200);
  expect(await statusOf("/health", "evil.example")).toBe(403);
});

test("a name that a proxy passes on is refused with the option that lets it in", async () => {
  const refused = await fetch(`${server.origin}/health`, { headers: { host: "LLM.example:8443" } });
  expect([refused.status, await refused.text()]).toEqual([
    403,
    expect.stringContaining("can let it in with --allow-host llm.example, or with an API key"),
  ]);
});

test("without a list, an open server answers no page of another origin", async () => {
  const open = startTestServer({ loopbackOnly: false });
  for (const origin of ["http://localhost:3000", "app://obsidian.md"]) {
    const answer = await fetch(`${open.origin}/v1/models`, { headers: { origin } });
    expect([answer.status, answer.headers.get("access-control-allow-origin")]).toEqual([200, null]);
  }
  await open.close();
});

test("* lets every page in", async () => {
  const open = startTestServer({ corsOrigins: ["*"] });
  const answer = await fetch(`${open.origin}/v1/models`, { headers: { origin: "https://any.example" } });
  expect([answer.status, answer.headers.get("access-control-allow-origin")]).toEqual([
    200,
    "https://any.example",
  ]);
  await open.close();
});

test("liveness and readiness need no key", async () => {
  for (const path of ["/health", "/health/ready", "/ping"]) {
    expect((await fetch(`${server.origin}${path}`)).status).toBe(200);
  }
});
