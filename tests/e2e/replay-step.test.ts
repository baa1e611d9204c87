/** A fault in a kernel under BUNTING_CUDA_SYNC=1, from the server's message to its repetition by tools/replay-step.ts. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { join, resolve } from "node:path";
import OpenAI from "openai";
import { answerTo, questions } from "../support/questions.ts";
import { Program } from "./program.ts";

const tool = resolve(import.meta.dir, "../../tools/replay-step.ts");
const timeoutMs = 120_000;
let block = "";

function withMishaps(mishaps: string): { environment: Record<string, string> } {
  const environment = { ...(process.env as Record<string, string>), BUNTING_EMULATOR_MISHAPS: mishaps };
  return { environment: { ...environment, BUNTING_CUDA_SYNC: "1" } };
}

function replay(mishaps: string, args: readonly string[]): Program {
  return new Program([process.execPath, tool, ...args], withMishaps(mishaps));
}

// The fault is in the tenth step or so, which reads keys and values of the steps before it.
beforeAll(async () => {
  const args = ["serve", "--device", "emu", "--port", "0", "--max-model-len", "512"];
  const server = Program.bunting(args, withMishaps("break_kernel=attention calls_before=40"));
  const client = new OpenAI({ baseURL: `${await server.url()}/v1`, apiKey: "none", maxRetries: 0 });
  expect(await answerTo(client, questions[0]!)).toBe(questions[0]!.answer);
  const lost =
    /Engine 0 was lost: GPU 0 is lost: attention, .*store of 4 bytes.*; the block of its step is in (\S+?)\. /;
  block = (await server.errorMatch(lost))[1]!;
  server.signal("SIGTERM");
  expect(await server.exitCode()).toBe(0);
}, timeoutMs);

afterAll(() => rmSync(block, { force: true }));

test(
  "the emulated GPU names the kernel and the thread that store outside all memory",
  async () => {
    const broken = replay("break_kernel=attention", [block]);
    expect(await broken.exitCode()).toBe(1);
    expect(broken.output).toMatch(/^Tokens: 1, sequences: 1, results: 1, last page: \d+\. /);
    expect(broken.output).toMatch(
      /It fails on the emulated GPU: GPU 0 is lost: attention, .*store of 4 bytes/,
    );
    expect(broken.output).not.toContain("the block of its step");
  },
  timeoutMs,
);

test(
  "a step without a fault runs, near the CPU engine",
  async () => {
    const whole = replay("", [block]);
    expect(await whole.exitCode()).toBe(0);
    expect(whole.output).toContain("It runs on the emulated GPU without a fault.");
    expect(whole.output).toMatch(
      /Its logits \(rows: 1\) are near those of the CPU engine: the least cosine is 0\.99/,
    );
  },
  timeoutMs,
);

test("a file that is no block is refused", async () => {
  const other = replay("", [join(import.meta.dir, "../../package.json")]);
  expect(await other.exitCode()).toBe(1);
  expect(other.errors).toMatch(/package\.json is not the block of a step\./);
});
