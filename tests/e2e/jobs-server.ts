/** Servers with a data folder, and batches that the official client begins on them. */

import { afterEach, beforeEach } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import OpenAI, { toFile } from "openai";
import { startTestServer, type TestServer, type TestServerOptions } from "./server.ts";

/** Returns a function that starts a server; server and data folder go after each test of the file. */
export function jobsServer(usual: TestServerOptions = {}): (options?: TestServerOptions) => TestServer {
  let data = "";
  let server: TestServer | null = null;
  beforeEach(() => {
    data = mkdtempSync(join(tmpdir(), "bunting-jobs-"));
  });
  afterEach(async () => {
    await server?.close();
    server = null;
    rmSync(data, { recursive: true, force: true });
  });
  return (options = {}) => {
    server = startTestServer({ data, stepMs: 0, ...usual, ...options });
    return server;
  };
}

export function clientOf({ origin }: TestServer, apiKey = "none"): OpenAI {
  return new OpenAI({ apiKey, baseURL: `${origin}/v1`, maxRetries: 0 });
}

/** Uploads the input of a batch; returns the file's ID. */
export async function upload(client: OpenAI, content: string | Uint8Array): Promise<string> {
  const file = await toFile(Buffer.from(content as Uint8Array), "in.jsonl");
  return (await client.files.create({ file, purpose: "batch" })).id;
}

type BatchBody = OpenAI.BatchCreateParams;

/** Body of a request that makes a batch of an uploaded file. */
export function batchOf(input: string, more: Partial<BatchBody> = {}): BatchBody {
  return {
    input_file_id: input,
    endpoint: "/v1/chat/completions",
    completion_window: "24h",
    ...more,
  };
}

/** Uploads lines and makes a batch of them. */
export async function begin(
  client: OpenAI,
  lines: readonly string[] | string,
  more: Partial<BatchBody> = {},
): Promise<OpenAI.Batch> {
  const text = typeof lines === "string" ? lines : `${lines.join("\n")}\n`;
  return await client.batches.create(batchOf(await upload(client, text), more));
}
