/**
 * The whole program on the emulated GPU: every CUDA kernel and everything that drives them, behind the real server. And
 * what happens when a GPU is lost under a stream.
 */
import { expect, test } from "bun:test";
import OpenAI from "openai";
import { answerTo, questions } from "../support/questions.ts";
import { Program } from "./program.ts";

const timeoutMs = 120_000;

/** `mishaps` are those of csrc/cuda/runtime_emulated.h. */
function serveEmulated(mishaps: string): Program {
  const environment = {
    ...(process.env as Record<string, string>),
    BUNTING_EMULATOR_MISHAPS: mishaps,
  };
  return Program.bunting(["serve", "--device", "emu", "--port", "0", "--max-model-len", "512"], {
    environment,
  });
}

async function clientOf(program: Program): Promise<OpenAI> {
  return new OpenAI({ baseURL: `${await program.url()}/v1`, apiKey: "none", maxRetries: 0 });
}

async function end(program: Program): Promise<void> {
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);
}

/** The text of each delta of a streamed answer to the first question. */
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

// A step of the demo model is about 75 operations of a stream, and there are a few hundred before the first request.
test.each([
  ["lost", "lose_device=700", /Engine 0 was lost: the device is lost: a mishap that was asked for\./],
  [
    "hung",
    "hang=700 step_deadline_ms=8000",
    /Engine 0 was lost: the device is lost: it has not finished a step/,
  ],
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
