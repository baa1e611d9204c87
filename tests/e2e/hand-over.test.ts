/** Servers that take over an address one after the other, under clients that do not notice. */
import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Program } from "./program.ts";

setDefaultTimeout(300_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-hand-over-"));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));
const environment = { ...(process.env as Record<string, string>), XDG_RUNTIME_DIR: scratch };

const HAND_OVERS = 10;
const CLIENTS = 100;

/** A port that is free now. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { readonly port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function serve(port: number, ...args: string[]): Program {
  return Program.bunting(["serve", "--threads", "1", "--port", String(port), "--take-over", ...args], {
    environment,
  });
}

async function post(url: string, path: string, body: object): Promise<Response> {
  return await fetch(url + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

/** Streams an answer of so many tokens; returns the number that came. */
async function streamed(url: string, tokens: number): Promise<number> {
  const response = await post(url, "/v1/completions", {
    ...{ prompt: "Hi", max_tokens: tokens, ignore_eos: true, stream: true, temperature: 0 },
    stream_options: { include_usage: true },
  });
  const text = await response.text();
  expect([response.status, text.endsWith("data: [DONE]\n\n")]).toEqual([200, true]);
  return Number(/"completion_tokens": ?(\d+)/.exec(text)?.[1]);
}

test(`${CLIENTS} clients through ${HAND_OVERS} hand-overs: none is refused, no stream is cut`, async () => {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  let current = serve(port, "--device", "simulated");
  await current.url();
  let isOver = false;
  let answers = 0;
  const client = async (number: number): Promise<void> => {
    while (!isOver) {
      const tokens = 4 + ((number * 7) % 40);
      expect(await streamed(url, tokens)).toBe(tokens);
      answers += 1;
    }
  };
  const clients = Array.from({ length: CLIENTS }, (_, number) => client(number));
  const failed = Promise.all(clients).then(
    () => null,
    (error: Error) => error,
  );
  for (let count = 0; count < HAND_OVERS; count += 1) {
    const next = serve(port, "--device", "simulated");
    await next.url();
    expect(await current.exitCode()).toBe(0);
    expect(current.output).toContain("Another server has taken over the address");
    current = next;
  }
  isOver = true;
  expect(await failed).toBeNull();
  expect(answers).toBeGreaterThan(CLIENTS);
  current.signal("SIGTERM");
  expect(await current.exitCode()).toBe(0);
});

test("the successor has the predecessor's jobs, responses and pages on disk", async () => {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const args = ["--device", "cpu", "--kv-disk", "1", "--data", join(scratch, "data")];
  const before = serve(port, ...args);
  await before.url();
  const ask = async (): Promise<number> => {
    const prompt = "All that is known of birds. ".repeat(40);
    const response = await post(url, "/v1/completions", { prompt, max_tokens: 4 });
    const { usage } = (await response.json()) as {
      readonly usage: { readonly prompt_tokens_details: { readonly cached_tokens: number } };
    };
    return usage.prompt_tokens_details.cached_tokens;
  };
  expect(await ask()).toBe(0);
  const kept = (await (await post(url, "/v1/responses", { input: "Hi", max_output_tokens: 4 })).json()) as {
    readonly id: string;
  };
  const upload = new FormData();
  upload.append("purpose", "batch");
  upload.append("file", new File(["{}\n"], "lines.jsonl"));
  const file = (await (await fetch(`${url}/v1/files`, { method: "POST", body: upload })).json()) as {
    readonly id: string;
  };

  const after = serve(port, ...args);
  await after.url();
  expect(await before.exitCode()).toBe(0);
  expect((await fetch(`${url}/v1/responses/${kept.id}`)).status).toBe(200);
  expect((await fetch(`${url}/v1/files/${file.id}`)).status).toBe(200);
  expect(await ask()).toBeGreaterThan(100);
  after.signal("SIGTERM");
  expect(await after.exitCode()).toBe(0);
});

test("a successor that fails before it is ready leaves the address alone", async () => {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const before = serve(port, "--device", "simulated");
  await before.url();
  const failing = serve(port, join(scratch, "no-such-model"));
  expect(await failing.exitCode()).not.toBe(0);
  expect(await streamed(url, 4)).toBe(4);
  before.signal("SIGTERM");
  expect(await before.exitCode()).toBe(0);
});
