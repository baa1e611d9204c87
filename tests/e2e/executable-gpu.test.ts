/** Executable with the engines for CPUs and GPUs inside; the emulated GPU stands for a real one. */

import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Program } from "./program.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-executable-gpu-"));
const executable = join(scratch, "bunting");
const environment = { HOME: scratch, PATH: "/usr/bin:/bin" };
const root = resolve(import.meta.dir, "../..");

beforeAll(async () => {
  const cuda = join(root, "build/native/cuda/libbunting_emu.so");
  const build = new Program([process.execPath, join(root, "tools/build.ts"), executable], {
    environment: { ...(process.env as Record<string, string>), BUNTING_CUDA_LIBRARY: cuda },
  });
  if ((await build.exitCode()) !== 0) throw new Error(`${build.output}${build.errors}`);
}, 120_000);

afterAll(() => rmSync(scratch, { recursive: true }));

test("it serves on the GPU that it finds, with the library that it contains", async () => {
  const args = [executable, "serve", "--port", "0", "--max-model-len", "512"];
  const server = new Program(args, { cwd: scratch, environment });
  const response = await fetch(`${await server.url()}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "demo", prompt: "One two", max_tokens: 2 }),
  });
  expect(response.status).toBe(200);
  expect(server.output).toMatch(/^Computes on GPUs, because there is 1 × /m);
  server.signal("SIGTERM");
  expect(await server.exitCode()).toBe(0);
  const cache = join(scratch, ".cache", "bunting");
  expect(readdirSync(join(cache, readdirSync(cache)[0]!)).sort()).toEqual(["libbunting_cuda.so", "models"]);
}, 300_000);

test("the CPU serves if it is asked for", async () => {
  const program = new Program([executable, "doctor", "--port", "0", "--device", "cpu"], {
    cwd: scratch,
    environment,
  });
  expect(await program.exitCode()).toBe(0);
  expect(program.output).toMatch(/^cuda +not used, though there is 1 × .*: another device was asked for$/m);
}, 60_000);
