import { expect, test } from "bun:test";
import { Lifecycle } from "./lifecycle.ts";
import { listen } from "./start-server.ts";

test("while the model loads the server is alive, and tells everybody else to come back", async () => {
  const server = listen({ host: "127.0.0.1", port: 0 }, new Lifecycle("loading"));
  try {
    expect((await fetch(new URL("/health", server.url))).status).toBe(200);
    for (const path of ["/health/ready", "/v1/models", "/v1/chat/completions"]) {
      const response = await fetch(new URL(path, server.url));
      expect(response.status).toBe(503);
      expect(response.headers.get("retry-after")).toMatch(/^\d+$/);
      expect(await response.json()).toMatchObject({ error: { code: "loading" } });
    }
  } finally {
    await server.stop(true);
  }
});

test("a port that is taken is refused with a sentence", async () => {
  const first = listen({ host: "127.0.0.1", port: 0 }, new Lifecycle("loading"));
  try {
    expect(() => listen({ host: "127.0.0.1", port: first.port! }, new Lifecycle("loading"))).toThrow(
      `Cannot listen on 127.0.0.1:${first.port}: `,
    );
  } finally {
    await first.stop(true);
  }
});
