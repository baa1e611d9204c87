/**
 * OpenAI's own Python client, if installed: its batch example with the base URL in the environment, and
 * embeddings.
 */

import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Program } from "./program.ts";

const python = process.env.PYTHON ?? "python3";
const hasClient =
  Bun.which(python) !== null && Bun.spawnSync([python, "-c", "import openai"], { stderr: "ignore" }).success;
if (!hasClient) console.log(`skipped: ${python} has no package openai (PYTHON names another Python)`);

const example = `
import json
import sys
import time

from openai import OpenAI

client = OpenAI()

with open(sys.argv[1], "w") as lines:
    for number in range(3):
        body = {"model": "demo", "messages": [{"role": "user", "content": f"Question {number}"}], "max_tokens": 4, "seed": 1}
        line = {"custom_id": f"request-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
        lines.write(json.dumps(line) + "\\n")

batch_input_file = client.files.create(file=open(sys.argv[1], "rb"), purpose="batch")
batch = client.batches.create(
    input_file_id=batch_input_file.id,
    endpoint="/v1/chat/completions",
    completion_window="24h",
    metadata={"description": "three questions"},
)
while batch.status not in ("completed", "failed", "expired", "cancelled"):
    time.sleep(0.02)
    batch = client.batches.retrieve(batch.id)

results = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
completed = client.batches.list(limit=10).data[0]
client.files.delete(batch_input_file.id)
print(json.dumps({
    "status": batch.status,
    "counts": batch.request_counts.model_dump(),
    "metadata": batch.metadata,
    "isListed": completed.id == batch.id,
    "files": [file.purpose for file in client.files.list()],
    "ids": [result["custom_id"] for result in results],
    "tokens": [result["response"]["body"]["usage"]["completion_tokens"] for result in results],
}))
`;

/** The client itself requests base64 and returns numbers. */
const embedding = `
import json

from openai import OpenAI

client = OpenAI()
response = client.embeddings.create(model="demo", input=["the sea", "an ocean"], dimensions=8)
print(json.dumps({
    "lengths": [len(one.embedding) for one in response.data],
    "norms": [round(sum(value * value for value in one.embedding), 5) for one in response.data],
    "isCounted": response.usage.prompt_tokens == response.usage.total_tokens > 0,
}))
`;

/** Returns the output of a script, run against a server with a data folder. */
async function outputOf(script: string): Promise<unknown> {
  const folder = mkdtempSync(join(tmpdir(), "bunting-python-"));
  const data = join(folder, "data");
  const server = Program.bunting(["serve", "--device", "simulated", "--port", "0", "--data", data]);
  try {
    const environment = {
      ...(process.env as Record<string, string>),
      OPENAI_BASE_URL: `${await server.url()}/v1`,
      OPENAI_API_KEY: "none",
    };
    const client = new Program([python, "-c", script, join(folder, "in.jsonl")], { environment });
    expect([await client.exitCode(), client.errors]).toEqual([0, ""]);
    return JSON.parse(client.output);
  } finally {
    server.signal("SIGTERM");
    await server.exitCode();
    rmSync(folder, { recursive: true, force: true });
  }
}

test.skipIf(!hasClient)(
  "texts are embedded",
  async () => {
    expect(await outputOf(embedding)).toEqual({ lengths: [8, 8], norms: [1, 1], isCounted: true });
  },
  60_000,
);

test.skipIf(!hasClient)(
  "a batch, from its file to its results",
  async () => {
    expect(await outputOf(example)).toEqual({
      status: "completed",
      counts: { completed: 3, failed: 0, total: 3 },
      metadata: { description: "three questions" },
      isListed: true,
      files: ["batch_output"],
      ids: ["request-0", "request-1", "request-2"],
      tokens: [4, 4, 4],
    });
  },
  60_000,
);
