/** Executable dist/bunting as a new user gets it: one file, an empty folder, an empty home. */

import { afterAll, beforeAll, expect, test } from "bun:test";
import { appendFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Program } from "./program.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-executable-"));
const executable = join(scratch, "bunting");
const home = join(scratch, "home");
const folder = join(scratch, "folder");
const environment = { HOME: home, PATH: "/usr/bin:/bin" };

beforeAll(async () => {
  mkdirSync(home);
  mkdirSync(folder);
  const script = resolve(import.meta.dir, "../../tools/build.ts");
  const build = new Program([process.execPath, script, executable]);
  if ((await build.exitCode()) !== 0) throw new Error(`${build.output}${build.errors}`);
}, 120_000);

afterAll(() => rmSync(scratch, { recursive: true }));

async function chatOnce(): Promise<string> {
  const server = new Program([executable, "serve", "--port", "0"], { cwd: folder, environment });
  const url = await server.url();
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      model: "demo",
      messages: [{ role: "user", content: "Who are you?" }],
      max_tokens: 16,
      temperature: 0,
    }),
  });
  const body = (await response.json()) as { choices: { message: { content: string } }[] };
  expect(response.status).toBe(200);
  // Long enough for the encoder thread, whose code is a separate file inside the executable.
  const long = await fetch(`${url}/tokenize`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ prompt: "word ".repeat(4000) }),
  });
  expect(((await long.json()) as { count: number }).count).toBeGreaterThan(1000);
  // The executable bundles the page, since it has no sources to build it from.
  const html = await (await fetch(url)).text();
  const script = await fetch(new URL(/<script[^>]*src="([^"]+)"/.exec(html)![1]!, `${url}/`));
  expect([script.status, script.headers.get("content-type")]).toEqual([200, "text/javascript;charset=utf-8"]);
  server.signal("SIGTERM");
  expect(await server.exitCode()).toBe(0);
  return body.choices[0]!.message.content;
}

test("it answers a chat, also when what it extracted is damaged, and leaves the folder empty", async () => {
  const answer = await chatOnce();
  expect(answer.trim()).not.toBe("");
  expect(readdirSync(folder)).toEqual([]);

  const cache = join(home, ".cache", "bunting");
  const versions = readdirSync(cache);
  expect(versions).toHaveLength(1);
  const extracted = join(cache, versions[0]!);
  expect(readdirSync(extracted).sort()).toEqual(["libbunting_cpu.so", "models"]);
  appendFileSync(join(extracted, "libbunting_cpu.so"), "damage");
  expect(await chatOnce()).toBe(answer);
}, 60_000);

test("it finds a prompt on disk after kill -9", async () => {
  const data = join(scratch, "data");
  const prompt = "All that is known of birds. ".repeat(30);
  const ask = async (until: (metrics: string) => boolean) => {
    const args = ["serve", "--port", "0", "--kv-disk", "1", "--data", data];
    const server = new Program([executable, ...args], { cwd: folder, environment });
    const url = await server.url();
    const response = await fetch(`${url}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "demo", prompt, max_tokens: 8, temperature: 0 }),
    });
    const { choices } = (await response.json()) as { choices: { text: string }[] };
    while (!until(await (await fetch(`${url}/metrics`)).text())) await Bun.sleep(20); // no event tells
    server.signal("SIGKILL");
    await server.exitCode();
    return { text: choices[0]!.text, cache: response.headers.get("x-bunting-cache") };
  };
  const first = await ask((metrics) => /event="stored"\} [2-9]\d/.test(metrics));
  expect(first.cache).not.toContain("disk=");
  const second = await ask(() => true);
  expect(second.text).toBe(first.text);
  expect(second.cache).toMatch(/; disk=\d{3}; /);
}, 60_000);

test("it does not run what a bunfig.toml or .env in the current folder says", async () => {
  await Bun.write(join(folder, "bunfig.toml"), 'preload = ["./evil.ts"]\n');
  await Bun.write(join(folder, "evil.ts"), 'console.log("preloaded");');
  await Bun.write(join(folder, ".env"), "BUNTING_PORT=nonsense\n");
  const program = new Program([executable, "doctor", "--port", "0"], { cwd: folder, environment });
  expect(await program.exitCode()).toBe(0);
  expect(program.output).not.toContain("preloaded");
});
