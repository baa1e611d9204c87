/**
 * Models by their published names, as a user meets them: serve, pull, models, beside the hub's own Python client
 * and behind a proxy. The hub is one on this machine.
 */

import { afterAll, beforeEach, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { demoCutAsSmolLm } from "../support/demo-variants.ts";
import { FakeHub } from "../support/fake-hub.ts";
import { convertModel } from "../support/gguf-model.ts";
import { ggufBytes } from "../support/gguf-writer.ts";
import { Program } from "./program.ts";
import { demoFolder } from "./server.ts";

const python = process.env.PYTHON ?? "python3";
const hasClient =
  Bun.which(python) !== null &&
  Bun.spawnSync([python, "-c", "import huggingface_hub"], { stderr: "ignore" }).success;
if (!hasClient)
  console.log(`skipped: ${python} has no package huggingface_hub (PYTHON names another Python)`);

const names = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"];
const files = [...names, "model.safetensors"].map(
  (name) => [name, readFileSync(join(demoFolder, name))] as const,
);
const weightsHash = createHash("sha256").update(files.at(-1)![1]).digest("hex");

const scratch = mkdtempSync(join(tmpdir(), "bunting-hub-"));
const hub = new FakeHub();
const commit = hub.commit("Tiny/Demo", Object.fromEntries(files));
afterAll(async () => {
  await hub.stop();
  rmSync(scratch, { recursive: true });
});

let cache = "";
let environment: Record<string, string> = {};
beforeEach(() => {
  cache = mkdtempSync(join(scratch, "cache-"));
  hub.requests.length = 0;
  const { HTTP_PROXY: _, http_proxy: __, ...others } = process.env as Record<string, string>;
  environment = { ...others, HF_ENDPOINT: hub.endpoint, HF_HUB_CACHE: cache, HF_TOKEN: "secret" };
});

async function run(
  args: readonly string[],
  more: Record<string, string> = {},
): Promise<[number, string, string]> {
  const program = Program.bunting(args, { environment: { ...environment, ...more } });
  const code = await program.exitCode();
  return [code, program.output, program.errors];
}

const blobs = (): string[] => readdirSync(join(cache, "models--Tiny--Demo", "blobs"));

function expectGood(): void {
  expect(blobs().filter((name) => name.includes("incomplete"))).toEqual([]);
  const blob = readFileSync(join(cache, "models--Tiny--Demo", "blobs", weightsHash));
  expect(createHash("sha256").update(blob).digest("hex")).toBe(weightsHash);
}

test("serve fetches a named model, says how large it is, and answers", async () => {
  const args = ["serve", "Tiny/Demo", "--port", "0", "--device", "cpu", "--data", "off"];
  const program = Program.bunting(args, { environment });
  const url = await program.url();
  const answer = await fetch(`${url}/v1/completions`, {
    method: "POST",
    body: JSON.stringify({ model: "Tiny/Demo", prompt: "Hi", max_tokens: 2 }),
    headers: { "content-type": "application/json" },
  });
  expect(answer.status).toBe(200);
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);
  expect(program.errors).toMatch(/^Tiny\/Demo at \w{8}: 11\.3 MiB, to be fetched to .*\n10 %: /);
  expect(program.errors).toContain("100 %: 11.3 MiB of 11.3 MiB\n");
  expectGood();
}, 30_000);

test("pull prints the path, models lists it, and rm frees it", async () => {
  const path = join(cache, "models--Tiny--Demo", "snapshots", commit);
  expect((await run(["pull", "Tiny/Demo"])).slice(0, 2)).toEqual([0, `${path}\n`]);
  const [, listed] = await run(["models"]);
  expect(listed).toMatch(/^model +size +last use +where\nTiny\/Demo +11\.3 MiB +\d{4}-\d\d-\d\d +\//);
  expect(await run(["models", "rm", "Tiny/Demo"])).toEqual([0, "11.3 MiB are free again.\n", ""]);
  expect((await run(["models"]))[1]).toStartWith(`No models in ${cache}`);
});

test("Ollama's name is the model's name for clients, and doctor finds it in the cache", async () => {
  const gguf = ggufBytes(convertModel(demoCutAsSmolLm(join(cache, "demo")), { type: "Q8_0", pre: "smollm" }));
  hub.commit("unsloth/Qwen3-0.6B-GGUF", { "Qwen3-0.6B-Q4_K_M.gguf": gguf, "Qwen3-0.6B-Q8_0.gguf": "other" });
  const args = ["serve", "qwen3:0.6b", "--port", "0", "--device", "simulated", "--data", "off"];
  const program = Program.bunting(args, { environment });
  const url = await program.url();
  const { data } = (await (await fetch(`${url}/v1/models`)).json()) as { data: { id: string }[] };
  expect(data.map(({ id }) => id)).toEqual(["qwen3:0.6b"]);
  program.signal("SIGTERM");
  await program.exitCode();
  const [, report] = await run(["doctor", "qwen3:0.6b", "--device", "cpu"], { HF_HUB_OFFLINE: "1" });
  expect(report).toContain("model           ");
}, 30_000);

test("a model that does not fit, or is not known, is refused before its weights are fetched", async () => {
  const {
    model_type: _,
    architectures: __,
    ...config
  } = JSON.parse(String(files[0]![1])) as Record<string, unknown>;
  const unknown = JSON.stringify({ ...config, model_type: "quantum", architectures: ["QuantumForCausalLM"] });
  hub.commit("Tiny/Unknown", { ...Object.fromEntries(files), "config.json": unknown });
  const small = ["serve", "Tiny/Demo", "--kv-cache-gib", "0.001", "--device", "cpu"];
  const [code, , errors] = await run(small);
  expect([code, errors]).toEqual([1, expect.stringContaining("Tiny/Demo will not fit: ")]);
  expect(await run(["pull", "Tiny/Unknown"])).toEqual([
    1,
    "",
    expect.stringMatching(/\nTiny\/Unknown\/config\.json: .*Quantum/),
  ]);
  expect((await run(["pull", "Tiny/None@v1"]))[2]).toBe(
    `Tiny/None at v1 on ${new URL(hub.endpoint).host} does not exist.\n`,
  );
  expect(blobs()).not.toContain(weightsHash);
  const weights = hub.requests.filter(({ path }) => path.endsWith("model.safetensors"));
  expect(weights.every(({ range }) => range === "bytes=0-1048575")).toBe(true);
});

test("a pull that is interrupted says so, and the next one goes on", async () => {
  const slow = new FakeHub({ bytesPerSecond: 4e6 });
  slow.commit("Tiny/Demo", Object.fromEntries(files));
  const program = Program.bunting(["pull", "Tiny/Demo"], {
    environment: { ...environment, HF_ENDPOINT: slow.endpoint },
  });
  await program.errorsMatch(/50 %/);
  program.signal("SIGINT");
  expect(await program.exitCode()).toBe(130);
  await slow.stop();
  expect(program.errors).toEndWith("Stopped. `bunting pull Tiny/Demo` goes on from here.\n");
  expect(blobs()).toContain(`${weightsHash}.incomplete`);
  const [code, , errors] = await run(["pull", "Tiny/Demo"]);
  expect([code, errors]).toEqual([0, expect.stringContaining(" are missing, ")]);
  expectGood();
}, 30_000);

test("a proxy of the usual variables is used", async () => {
  const asked: string[] = [];
  const proxy = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: (request) => {
      asked.push(new URL(request.url).pathname);
      const url = new URL(request.url);
      // The proxy knows the address of a hub that nobody else can resolve.
      const to = url.host === "hub.example" ? hub.endpoint + url.pathname + url.search : request.url;
      return fetch(to, { headers: request.headers, redirect: "manual", proxy: "" });
    },
  });
  const more = {
    HF_ENDPOINT: "http://hub.example",
    http_proxy: `http://127.0.0.1:${proxy.port}`,
    no_proxy: "localhost",
  };
  const [code, , errors] = await run(["pull", "Tiny/Demo"], more);
  await proxy.stop(true);
  expect([code, errors]).toEqual([0, expect.stringContaining("100 %")]);
  expect(asked).toContain("/api/models/Tiny/Demo/revision/main");
});

const snapshot = `
import sys
from huggingface_hub import snapshot_download
print(snapshot_download("Tiny/Demo"))
`;

test.skipIf(!hasClient)(
  "ten pulls at once, half of them Python's, end with one good copy that both use",
  async () => {
    const path = join(cache, "models--Tiny--Demo", "snapshots", commit);
    const ours = Array.from({ length: 5 }, () => run(["pull", "Tiny/Demo"]));
    const theirs = Array.from({ length: 5 }, () => {
      const program = new Program([python, "-c", snapshot], { environment });
      return program.exitCode().then((code) => [code, program.output]);
    });
    for (const [code, output] of await Promise.all([...ours, ...theirs]))
      expect([code, output]).toEqual([0, `${path}\n`]);
    expectGood();
    expect(blobs().length).toBe(files.length);
    hub.requests.length = 0;
    const offline = { ...environment, HF_HUB_OFFLINE: "1" };
    const program = new Program([python, "-c", snapshot], { environment: offline });
    expect([await program.exitCode(), program.output]).toEqual([0, `${path}\n`]);
    expect(hub.requests).toEqual([]);
  },
  60_000,
);
