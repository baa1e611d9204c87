/**
 * Whole program on the emulated GPU: every CUDA kernel and its host code behind the real server. Also the
 * loss of a GPU during a stream.
 */
import { expect, test } from "bun:test";
import { join } from "node:path";
import OpenAI from "openai";
import { answerTo, questions } from "../support/questions.ts";
import { Program } from "./program.ts";

const timeoutMs = 300_000;
const fakeCublaslt = join(import.meta.dir, "../../build/native/cuda/libbunting_fake_cublaslt.so");

function emulated(
  command: "serve" | "doctor",
  options: readonly string[],
  environment: Readonly<Record<string, string>>,
): Program {
  const device = ["--device", "emu", "--port", "0", "--max-model-len", "512"];
  return Program.bunting([command, ...device, ...options], {
    environment: { ...(process.env as Record<string, string>), ...environment },
  });
}

/** Starts the server; `mishaps` are those of csrc/cuda/runtime_emulated.h. */
function serveEmulated(mishaps: string, options: readonly string[] = []): Program {
  return emulated("serve", options, {
    BUNTING_EMULATOR_MISHAPS: mishaps,
    BUNTING_CUBLASLT: fakeCublaslt,
  });
}

async function clientOf(program: Program): Promise<OpenAI> {
  return new OpenAI({ baseURL: `${await program.url()}/v1`, apiKey: "none", maxRetries: 0 });
}

async function end(program: Program): Promise<void> {
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);
}

/** Returns the text of each delta of a streamed answer to the first question. */
async function stream(client: OpenAI): Promise<string[]> {
  const { messages } = questions[0]!;
  const deltas: string[] = [];
  for await (const chunk of await client.chat.completions.create({
    model: "demo",
    messages: [...messages],
    stream: true,
  })) {
    const content = chunk.choices[0]?.delta.content ?? "";
    if (content !== "") deltas.push(content);
  }
  return deltas;
}

test(
  "twenty questions at once have the answers that the CPU gives",
  async () => {
    const program = serveEmulated("");
    const client = await clientOf(program);
    const answers = await Promise.all(questions.map((question) => answerTo(client, question)));
    expect(answers).toEqual(questions.map(({ answer }) => answer));
    await end(program);
  },
  timeoutMs,
);

// A step of the demo model has about 75 stream operations; a few hundred come before the first request.
test.each([
  ["lost", "lose_device=700", /Engine 0 was lost: GPU 0 is lost: a mishap that was asked for\./],
  ["hung", "hang=700 step_deadline_ms=8000", /Engine 0 was lost: GPU 0 is lost: it has not finished a step/],
])(
  "a GPU that is %s under a stream pauses it: the answer goes on and nothing comes twice",
  async (_, mishaps, told) => {
    const program = serveEmulated(mishaps);
    const deltas = await stream(await clientOf(program));
    expect(deltas.join("")).toBe(questions[0]!.answer);
    expect(deltas.length).toBeGreaterThan(1);
    expect(program.errors).toMatch(told);
    expect(program.errors).toContain("Engine 0 is back.");
    await end(program);
  },
  timeoutMs,
);

/** Texts of four completions at once, two for each of two GPUs. */
function fourTexts(client: OpenAI): Promise<string[]> {
  const prompts = ["Once upon a time", "The sun", "Two and two", "A cat"];
  return Promise.all(
    prompts.map(async (prompt) => {
      const long = { max_tokens: 16, min_tokens: 16, temperature: 0 };
      const { choices } = await client.completions.create({ model: "demo", prompt, ...long });
      return choices[0]!.text;
    }),
  );
}

// The first GPU is lost under its sequences. Its replacement is there soon, or never if its driver hangs in
// the reset; the other GPU goes on, and gets what ran on the first.
test.each([
  ["comes back", "lose_device=700", true],
  ["hangs in a driver call", "hang_in=finish calls_before=12 step_deadline_ms=10000", true],
  // Its next start finds no memory, and hangs when it frees what it has; the one after that succeeds.
  [
    "hangs while it frees memory",
    "lose_device=700 resets_before=1 fail_allocation=5 hang_in=release call_deadline_ms=5000",
    true,
  ],
  ["hangs in its reset", "lose_device=700 hang_in=reset call_deadline_ms=5000", false],
])(
  "one of two GPUs that %s does not take the other along",
  async (_, mishaps, isReplaced) => {
    const program = serveEmulated(`devices=2 ${mishaps}`);
    const client = await clientOf(program);
    const texts = fourTexts(client);
    await program.errorMatch(/Engine 0 was lost: GPU 0 is lost: /);
    await program.errorMatch(isReplaced ? /Engine 0 is back\./ : /It is not started again/);
    if (!isReplaced) expect(program.errors).toContain("only a new process gets it back");
    expect(program.errors).not.toContain("Engine 1");
    expect(await fourTexts(client)).toEqual(await texts);
    await end(program);
  },
  timeoutMs,
);

test(
  "a server whose only GPU cannot be had back ends with the code for another try",
  async () => {
    const program = serveEmulated("lose_device=700 hang_in=reset call_deadline_ms=1000");
    await expect(stream(await clientOf(program))).rejects.toThrow();
    expect(await program.exitCode()).toBe(75);
    expect(program.errors).toMatch(/No engine is left: GPU 0 is lost: .* only a new process gets it back/);
  },
  timeoutMs,
);

test(
  "a request that kills the GPU twice is refused, the one beside it and those after it are answered",
  async () => {
    const poison = [901, 902, 903, 904];
    const program = serveEmulated(`lose_on_words=${poison}`);
    const client = await clientOf(program);
    const long = {
      model: "demo",
      prompt: "Once upon a time",
      max_tokens: 60,
      min_tokens: 60,
      temperature: 0,
    };
    const kill = () => client.completions.create({ model: "demo", prompt: poison, max_tokens: 4 });
    let killer: Promise<unknown> | null = null;
    let text = "";
    for await (const chunk of await client.completions.create({ ...long, stream: true })) {
      text += chunk.choices[0]?.text ?? "";
      killer ??= kill().then(
        () => "answered",
        (error: Error) => error.message,
      );
    }
    expect(await killer).toMatch(/GPU 0 is lost: a mishap that was asked for, for certain words/);
    expect(program.errors.match(/Engine 0 was lost/g)).toHaveLength(2);
    expect(text).toBe((await client.completions.create(long)).choices[0]!.text);
    await end(program);
  },
  timeoutMs,
);

test.each([
  ["weights, keys and values in fp8", ["--quant", "fp8", "--kv", "fp8"]],
  ["weights in int8 and cuBLASLt", ["--quant", "int8", "--gemm", "cublaslt"]],
])(
  "with %s the answers are the same",
  async (_, options) => {
    const program = serveEmulated("", options);
    const client = await clientOf(program);
    const some = questions.slice(0, 2);
    const answers = await Promise.all(some.map((question) => answerTo(client, question)));
    expect(answers).toEqual(some.map(({ answer }) => answer));
    await end(program);
  },
  timeoutMs,
);

test("doctor explains the device, what of its memory goes where, and what multiplies", async () => {
  const own = emulated("doctor", [], { BUNTING_CUBLASLT: "/nowhere/libcublasLt.so" });
  expect(await own.exitCode()).toBe(0);
  expect(own.output).toContain("device          emu, because it was asked for");
  expect(own.output).toMatch(
    /gpu +emulated GPU: sm_80, 4 multiprocessors, 1\.0 GiB, of which 1\.0 GiB free\n +no driver/,
  );
  expect(own.output).toMatch(
    /gemm +own kernels, because .*\n +--gemm cublaslt cannot be had: there is no cuBLASLt: \/nowhere/,
  );
  expect(own.output).toMatch(/weights +[\d.]+ MiB\nKV cache +[\d.]+ MiB .*\nworkspaces +[\d.]+ MiB\nreserve/);
  const theirs = emulated("doctor", ["--gemm", "cublaslt", "--quant", "fp8"], {
    BUNTING_CUBLASLT: fakeCublaslt,
  });
  expect(await theirs.exitCode()).toBe(0);
  expect(theirs.output).toMatch(
    /gemm +cuBLASLt 13\.1\.2 \(.*\) for more than 64 tokens of a step, because it was asked for/,
  );
  expect(theirs.output).toContain("bf16 with weights in fp8");
});

test("a GPU that is too small is refused in one sentence with the numbers, before anything is loaded", async () => {
  const program = serveEmulated("memory_bytes=80000000");
  expect(await program.exitCode()).toBe(1);
  expect(program.errors).toMatch(
    /The model does not fit: the weights take [\d.]+ MiB of the 76\.3 MiB available, and workspaces and the reserve take [\d.]+ MiB\./,
  );
});

test.each([
  ["cuBLASLt", ["--gemm", "cublaslt"], /--gemm cublaslt: there is no cuBLASLt: \/nowhere/],
  ["int8 keys", ["--kv", "int8"], /--kv int8: a GPU keeps keys and values in bf16 or, with --kv fp8, in fp8/],
  [
    "heads without a kernel",
    [join(import.meta.dir, "../reference/qwen3"), "--max-model-len", "64"],
    /--device emu: the GPU engine has heads of 32, 64, 96, 128, 256 and 512, not of 80; use --device cpu\./,
  ],
])("%s: refused where it cannot be had", async (_, options, sentence) => {
  const program = emulated("serve", options, { BUNTING_CUBLASLT: "/nowhere/libcublasLt.so" });
  expect(await program.exitCode()).toBe(1);
  expect(program.errors).toMatch(sentence);
});
