/** Command line: refusals and their messages, graceful shutdown, chat and benchmark commands. */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Program, TerminalProgram } from "./program.ts";
import { demoFolder } from "./server.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-cli-"));
afterAll(() => rmSync(scratch, { recursive: true }));

/** Arguments of a server without a model's arithmetic: steps take 5 ms. */
const simulated = ["serve", "--device", "simulated", "--port", "0"];

async function streamTokens(
  url: string,
  tokens: number,
  headers: Readonly<Record<string, string>> = {},
): Promise<Response> {
  return await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    body: JSON.stringify({
      model: "demo",
      messages: [{ role: "user", content: "Hi" }],
      max_tokens: tokens,
      ignore_eos: true,
      stream: true,
      stream_options: { include_usage: true },
    }),
    headers: { "content-type": "application/json", ...headers },
  });
}

describe("what cannot work is refused in one sentence", () => {
  const empty = join(scratch, "no-model");
  test.each([
    ["./model.gguf", "unknown command './model.gguf'"],
    ["--port", "unknown option '--port'"],
  ])("%s without a command", async (argument, refusal) => {
    const program = Program.bunting([argument]);
    expect(await program.exitCode()).toBe(1);
    expect(program.errors).toBe(
      `error: ${refusal}\n(--help lists the commands; a model and its options belong to bunting serve)\n`,
    );
  });

  test("a name that is no command, with what there is instead", async () => {
    for (const [given, refusal] of [
      [["help", "nonsense"], "'nonsense'"],
      [["run", "qwen3:0.6b"], "'run': here it is bunting chat"],
      [["list"], "'list': here it is bunting models"],
    ] as const) {
      const program = Program.bunting([...given]);
      expect([await program.exitCode(), program.output]).toEqual([1, ""]);
      expect(program.errors).toStartWith(`error: unknown command ${refusal}\n(--help lists the commands;`);
    }
    const help = Program.bunting(["help", "pull"]);
    expect([await help.exitCode(), help.errors]).toEqual([0, ""]);
    expect(help.output).toStartWith("Usage: bunting pull [options] <model>\n");
  });

  test.each([
    ["--temperature", "a number between 0 and 2"],
    ["--seed", "a whole number between 0 and 2147483647"],
  ])("%s of a chat outside its range", async (option, range) => {
    const program = Program.bunting(["chat", option, "-1"]);
    expect(await program.exitCode()).toBe(1);
    expect(program.errors).toContain(`"-1" is not ${range}.\n`);
  });

  test.each([
    ["--prot", "\n(Did you mean --port?)"],
    ["--max-num-seqs", ": here it is --sequences-max"],
    ["--model-path", ": the model is an argument, without an option"],
    ["--lora-modules", ": here it is --lora"],
    ["--constructor", ""],
  ])("the option %s, with what there is instead", async (option, instead) => {
    const program = Program.bunting(["serve", option, empty]);
    expect(await program.exitCode()).toBe(1);
    expect(program.errors).toBe(
      `error: unknown option '${option}'${instead}\n(bunting serve [options] [model]; --help lists the options)\n`,
    );
  });
});

test.each(["chat", "bench"])(
  "%s says that no server answers, or that no such host exists",
  async (command) => {
    const gone = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response() });
    await gone.stop(true);
    for (const [url, sentence] of [
      [
        `http://127.0.0.1:${gone.port}`,
        `No server answers at http://127.0.0.1:${gone.port}/v1; \`bunting serve\` starts one.\n`,
      ],
      ["not a server", '"not a server" is not the address of a server.\n'],
    ] as const) {
      const program = Program.bunting([command, "--url", url]);
      expect(await program.exitCode()).toBe(1);
      expect(program.errors).toBe(sentence);
    }
  },
);

test("--help fits 80 columns where no terminal is, in groups", async () => {
  const helpOf = async (...args: string[]): Promise<string> => {
    const program = Program.bunting([...args, "--help"]);
    expect([await program.exitCode(), program.errors]).toEqual([0, ""]);
    return program.output;
  };
  const main = await helpOf();
  const commands = [...main.matchAll(/^ {2}([a-z]+) (?=.*\[options\])/gm)].map(([, name]) => name!);
  expect(commands).toEqual([
    "serve",
    "chat",
    "batch",
    "jobs",
    "pull",
    "cache",
    "doctor",
    "bench",
    "simulate",
    "top",
    "why",
  ]);
  const all = [main, ...(await Promise.all(commands.map((name) => helpOf(name))))];
  for (const text of all) {
    expect(text.split("\n").filter((line) => line.length > 80)).toEqual([]);
    // Options of the command itself must not be in commander's default group.
    expect(text.match(/^Options:\n(?: {2,}.*\n)*/m)![0]).toMatch(
      /^Options:\n(?: {2}-V.*\n)? {2}-h, --help.*\n$/,
    );
  }
}, 30_000);

test("a server speaks of the demo model if it serves no other", async () => {
  const outputOf = async (...models: string[]): Promise<string> => {
    const program = Program.bunting(["serve", "--port", "0", "--data", "off", "--device", "cpu", ...models]);
    await program.url();
    program.signal("SIGTERM");
    await program.exitCode();
    return program.output;
  };
  expect(await outputOf()).toContain("The demo model is tiny");
  expect(await outputOf("--model", `own=${demoFolder}`)).not.toContain("The demo model");
});

describe("a server that is told to stop", () => {
  test("finishes its streams, takes nothing new, and exits with 0", async () => {
    const program = Program.bunting(simulated);
    const url = await program.url();
    await program.outputMatch(new RegExp(`^ +Chat: ${url}/$`, "m"));
    const stream = await streamTokens(url, 100);
    const reader = stream.body!.getReader();
    await reader.read();
    program.signal("SIGTERM");
    await program.outputMatch(/Finishing 1 running request/);
    const ready = await fetch(`${url}/health/ready`);
    const refused = await streamTokens(url, 1);
    expect([ready.status, refused.status]).toEqual([503, 503]);
    expect(await refused.json()).toMatchObject({ error: { code: "draining" } });

    let text = "";
    const decoder = new TextDecoder();
    for (let part = await reader.read(); !part.done; part = await reader.read())
      text += decoder.decode(part.value);
    expect(text).toContain('"completion_tokens":100');
    expect(text).toEndWith("data: [DONE]\n\n");
    expect(await program.exitCode()).toBe(0);
  });

  test("cuts what does not finish in time, with an error in the stream", async () => {
    const program = Program.bunting([...simulated, "--shutdown-timeout-s", "0.1"]);
    const stream = await streamTokens(await program.url(), 2000);
    program.signal("SIGINT");
    const text = await stream.text();
    expect(text).toContain('"error"');
    expect(text).not.toContain("[DONE]");
    expect(await program.exitCode()).toBe(0);
    expect(program.output).toContain("1 request was cut off.");
  });

  test("ends at once when told again", async () => {
    const program = Program.bunting(simulated);
    const reader = (await streamTokens(await program.url(), 2000)).body!.getReader();
    program.signal("SIGTERM");
    await program.outputMatch(/Finishing 1 running request/);
    await Bun.sleep(150); // two signals within a tenth of a second count as one
    program.signal("SIGTERM");
    expect(await program.exitCode()).toBe(143);
    await reader.cancel().catch(() => {}); // its server has stopped
  });
});

describe("with a running server", () => {
  let server: Program;
  let url: string;

  beforeAll(async () => {
    server = Program.bunting(simulated);
    url = await server.url();
  });
  afterAll(async () => {
    server.signal("SIGTERM");
    await server.exitCode();
  });

  test("chat answers every line of its input, with figures beside the answers", async () => {
    const program = Program.bunting(["chat", "--url", url, "--max-tokens", "8"]);
    program.type("first");
    program.type("second");
    program.type("/exit");
    expect(await program.exitCode()).toBe(0);
    expect(program.output.trim()).not.toBe("");
    const figures = program.errors.trim().split("\n");
    expect(figures).toHaveLength(2);
    // The second prompt begins with the whole first turn, which is cached.
    expect(figures[0]).toMatch(/^\[\d+ tokens · .* prompt \d+, \d+ % cached\]$/);
    expect(figures[1]).toMatch(/prompt \d+, [1-9]\d? % cached\]$/);
  });

  test("Ctrl-C stops the answer and not the chat", async () => {
    const program = Program.bunting(["chat", "--url", url, "--max-tokens", "1900"]);
    program.type("endless");
    await program.outputMatch(/\S/);
    program.signal("SIGINT");
    await program.outputMatch(/\n$/);
    program.type("/exit");
    expect(await program.exitCode()).toBe(0);
  });

  test("bench measures it and writes a report", async () => {
    const json = join(scratch, "report.json");
    const load = "--requests 6 --concurrency 3 --prompt-tokens 64 --shared-prefix 32 --output-tokens 5".split(
      " ",
    );
    const program = Program.bunting(["bench", "--url", url, ...load, "--json", json]);
    expect(await program.exitCode()).toBe(0);
    expect(program.output).toContain("time to first token");
    const report = JSON.parse(readFileSync(json, "utf8"));
    expect(report).toMatchObject({ completed: 6, failed: 0, outputTokens: 30 });
    expect(report.cachedShare).toBeGreaterThan(0.2);
  });

  test("bench that is stopped prints what it has measured, and ends as the signal says", async () => {
    for (const [signal, code] of [
      ["SIGINT", 130],
      ["SIGTERM", 143],
    ] as const) {
      const load = "--requests 100000 --concurrency 2 --prompt-tokens 16 --output-tokens 2".split(" ");
      const program = new TerminalProgram(["bench", "--url", url, ...load]);
      await program.outputMatch(/[1-9]\d* of 100000 requests/);
      program.signal(signal);
      expect(await program.exitCode()).toBe(code);
      expect(program.output).toMatch(/time to first token +\d/);
      const [, stopped] = /Stopped after (\d+) of 100000 requests/.exec(program.output)!;
      expect(program.output).toMatch(new RegExp(`completed +failed[^]*\\n *${stopped} +0 `));
    }
  });

  test("a chat that is told to end does, with its server", async () => {
    const program = new TerminalProgram([
      "chat",
      "--device",
      "simulated",
      join(import.meta.dir, "../../models/demo"),
    ]);
    await program.outputMatch(/> /);
    program.press("endless\r");
    await program.outputMatch(/endless\r+\n\S/);
    program.signal("SIGTERM");
    expect(await program.exitCode()).toBe(143);
  });

  test("simulate ends as the signal says", async () => {
    for (const [signal, code] of [
      ["SIGINT", 130],
      ["SIGTERM", 143],
    ] as const) {
      const program = Program.bunting(["simulate", "--workload", "chat", "--requests", "1000000"]);
      await program.outputMatch(/seed 1/);
      program.signal(signal);
      expect(await program.exitCode()).toBe(code);
    }
  });

  test("a report that cannot be written is said so in a sentence, below the figures", async () => {
    const program = Program.bunting(["bench", "--url", url, "--requests", "1", "--json", scratch]);
    expect(await program.exitCode()).toBe(1);
    expect(program.output).toContain("time to first token");
    expect(program.errors).toMatch(/^The report cannot be written: .*\n$/);
  });
});

test("keys in a file open the server to their holders only", async () => {
  const file = join(scratch, "keys.txt");
  writeFileSync(file, "# of the team\nsecret-1\n");
  const program = Program.bunting([...simulated, "--api-key-file", file]);
  const models = `${await program.url()}/v1/models`;
  const status = async (key: string): Promise<number> =>
    (await fetch(models, { headers: { authorization: `Bearer ${key}` } })).status;
  expect([await status("secret-1"), await status("secret-2")]).toEqual([200, 401]);
  const jobs = ["jobs", "list", "--url", await program.url()];
  const chat = ["chat", "--url", await program.url()];
  const advice = "give one that it knows with --api-key, or as BUNTING_API_KEY.\n";
  for (const [args, sentence] of [
    [jobs, `The server wants an API key: ${advice}`],
    [chat, `The server wants an API key: ${advice}`],
    [[...chat, "--api-key", "secret-2"], `The server does not know this API key: ${advice}`],
  ] as const) {
    const asked = Program.bunting(args);
    expect([await asked.exitCode(), asked.errors]).toEqual([1, sentence]);
  }
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);
});

test("SIGHUP has the keys read again, and what runs goes on", async () => {
  const file = join(scratch, "hangup-keys.txt");
  writeFileSync(file, "before\n");
  const program = Program.bunting([...simulated, "--api-key-file", file]);
  const url = await program.url();
  const stream = await streamTokens(url, 100, { authorization: "Bearer before" });
  writeFileSync(file, "after\nothers\n");
  program.signal("SIGHUP");
  await program.outputMatch(/2 API keys read from /);
  const models = (key: string) => fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
  expect([(await models("before")).status, (await models("after")).status]).toEqual([401, 200]);
  expect(await stream.text()).toEndWith("data: [DONE]\n\n");
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);
});

test("--log-requests tells of responses and of answers, and of no text", async () => {
  const program = Program.bunting([...simulated, "--log-requests"]);
  const url = await program.url();
  await (await streamTokens(url, 5, { "x-request-id": "mine" })).text();
  await (await fetch(`${url}/state`)).text();
  await (await fetch(`${url}/nowhere?a=secret`)).text();
  await program.outputMatch(/GET/);
  const lines = program.output.split("\n").filter((line) => /^\d{4}-.*Z /.test(line));
  expect(lines.map((line) => line.slice(line.indexOf(" ") + 1)).sort()).toEqual([
    expect.stringMatching(/^mine POST \/v1\/chat\/completions 200 in \d+ ms$/),
    expect.stringMatching(
      /^mine answered: \d+ prompt tokens \(0 cached; new@0\), 5 generated, first after \d+ ms, [\d.]+ tokens\/s$/,
    ),
    expect.stringMatching(/^req_\S+ GET \/nowhere 404 in \d+ ms$/),
  ]);
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);
});

test("a server that npx has started ends with it", async () => {
  // npx starts a shell, and exits without reporting the program that the shell runs.
  const command = `"${process.execPath}" server/main.ts ${simulated.join(" ")} & echo "started $!"; wait`;
  const environment = { ...(process.env as Record<string, string>), npm_command: "exec" };
  const program = new Program(["sh", "-c", command], { environment });
  await program.url();
  program.signal("SIGKILL");
  await program.outputMatch(/Stopping\./);
  expect(await program.exitCode()).not.toBe(0); // the shell's exit code; the output ends with the server
});

test("doctor explains the machine and what serve would do", async () => {
  const program = Program.bunting(["doctor", "--port", "0"]);
  expect(await program.exitCode()).toBe(0);
  expect(program.output).toMatch(/instructions.*portable C\+\+/);
  expect(program.output).toMatch(/cuda +not used: /);
  expect(program.output).toMatch(/KV cache .* pages/);
  expect(program.output).toContain("`bunting serve` would start.");
});

test("doctor names what would stop serve", async () => {
  const program = Program.bunting(["doctor", "--port", "0", "--host", "0.0.0.0", "--max-model-len", "9999"]);
  expect(await program.exitCode()).toBe(1);
  expect(program.output).toContain("--max-model-len 9999");
  expect(program.output).toContain("Others can reach 0.0.0.0");
});
