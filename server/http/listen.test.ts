import { expect, test } from "bun:test";
import { refusalOn } from "../api/refusals.ts";
import { ConfigError } from "../config.ts";
import { Lifecycle } from "./lifecycle.ts";
import { listen, listenProblem } from "./listen.ts";

test("while the model loads the server is alive, and tells everybody else to come back", async () => {
  const server = listen({ host: "127.0.0.1", port: 0 }, new Lifecycle("loading"), refusalOn);
  try {
    expect((await fetch(new URL("/health", server.origin))).status).toBe(200);
    for (const path of ["/health/ready", "/v1/models", "/v1/chat/completions"]) {
      const response = await fetch(new URL(path, server.origin));
      expect(response.status).toBe(503);
      expect(response.headers.get("retry-after")).toMatch(/^\d+$/);
      expect(await response.json()).toMatchObject({ error: { code: "loading" } });
    }
    // The page is served while the model loads, and says so.
    const page = await fetch(server.origin);
    expect([page.status, page.headers.get("content-type")]).toEqual([200, "text/html;charset=utf-8"]);
    const [, script] = /src="([^"]+)"/.exec(await page.text())!;
    expect((await fetch(new URL(script!, `${server.origin}/`))).status).toBe(200);
    expect((await fetch(new URL("/page/none.js", server.origin))).status).toBe(503);
    const sentence = "the model is still being loaded";
    for (const path of ["/api/chat", "/api/tags"]) {
      const response = await fetch(new URL(path, server.origin));
      expect([response.status, await response.json()]).toEqual([503, { error: sentence }]);
    }
    for (const path of ["/v1/messages", "/v1/messages/count_tokens"]) {
      const response = await fetch(new URL(path, server.origin), { headers: { "x-request-id": "mine" } });
      const error = { type: "api_error", message: sentence };
      expect([response.status, await response.json()]).toEqual([
        503,
        { type: "error", error, request_id: "mine" },
      ]);
    }
  } finally {
    await server.kill();
  }
});

test("an address that cannot be listened on is refused with a sentence", async () => {
  const first = listen({ host: "127.0.0.1", port: 0 }, new Lifecycle("loading"), refusalOn);
  const port = first.port;
  try {
    const taken = `Port ${port} on 127.0.0.1 is in use; choose another with --port.`;
    expect(() => listen({ host: "127.0.0.1", port }, new Lifecycle("loading"), refusalOn)).toThrow(
      new ConfigError(taken),
    );
    expect(await listenProblem({ host: "127.0.0.1", port })).toBe(taken);
    expect(await listenProblem({ host: "192.0.2.1", port: 0 })).toBe(
      "192.0.2.1 is not an address of this machine.",
    );
    expect(await listenProblem({ host: "127.0.0.1", port: 0 })).toBeNull();
  } finally {
    await first.kill();
  }
});
