/** Recorded server, and `bunting simulate` on its recording. */

import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readRecording } from "../../server/recording/file.ts";
import { writeAdapter } from "../support/adapter-folder.ts";
import { Program } from "./program.ts";
import { demoFolder } from "./server.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-recording-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const file = join(scratch, "recording");

test("a recorded server repeats, and says what would have been otherwise", async () => {
  const program = Program.bunting([
    ...["serve", "--device", "simulated:2", "--port", "0"],
    ...["--tbt-ms", "50", "--record", file],
  ]);
  const url = await program.url();
  const post = async (path: string, body: object): Promise<void> => {
    const headers = { "content-type": "application/json" };
    const response = await fetch(url + path, { method: "POST", body: JSON.stringify(body), headers });
    expect(response.status).toBe(200);
    await response.text();
  };
  const ask = (content: string, more: object): Promise<void> => {
    const messages = [{ role: "user", content }];
    return post("/v1/chat/completions", { model: "demo", messages, ignore_eos: true, ...more });
  };
  const questions = Array.from({ length: 10 }, (_, i) => `${"A long story. ".repeat(30)} ${i}`);
  await Promise.all([
    ...questions.map((question, i) => ask(question, { max_tokens: 10 + i, stream: i % 2 === 0 })),
    ask("Three ways", { n: 3, max_tokens: 8 }),
    post("/v1/embeddings", { input: ["A long story. ".repeat(20), "A short one."] }),
  ]);
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);

  const replay = Program.bunting([
    ...["simulate", "--replay", file],
    ...["--what-if", "engines=1,tbt-ms=0", "--what-if", "policy=sarathi"],
  ]);
  expect([await replay.exitCode(), replay.errors]).toEqual([0, ""]);
  expect(replay.output).toContain("15 calls and ");
  expect(replay.output).toContain(" steps of 2 engines (simulated).");
  expect(replay.output).toContain("Run again, the scheduler decides the same, step by step.");
  for (const row of [/^unchanged +15 /m, /^engines=1,tbt-ms=0 +15 /m, /^policy=sarathi +15 /m]) {
    expect(replay.output).toMatch(row);
  }
}, 60_000);

test("programs repeat too: task groups, what is computed ahead, and wishes that come later", async () => {
  const recording = join(scratch, "programs");
  const program = Program.bunting([
    ...["serve", "--device", "simulated:2", "--port", "0"],
    ...["--record", recording],
  ]);
  const url = await program.url();
  const post = async (path: string, body: object): Promise<unknown> => {
    const headers = { "content-type": "application/json" };
    const response = await fetch(`${url}${path}`, { method: "POST", body: JSON.stringify(body), headers });
    expect(response.ok).toBe(true);
    return await response.json();
  };
  const long = { ignore_eos: true, max_tokens: 40 };
  const maps = ["a", "b", "c"].map((name) => ({ prompt: `Part ${name}:`, output: name, ...long }));
  const known = "What stands before the parts is known from the start. ".repeat(40);
  const mapReduce = { calls: [...maps, { prompt: `${known}{{a}}{{b}}{{c}}`, output: "all", ...long }] };
  const { id } = (await post("/v1/sessions", { calls: [{ prompt: "Later:", output: "late", ...long }] })) as {
    readonly id: string;
  };
  const late = fetch(`${url}/v1/sessions/${id}/variables/late?criteria=tbt:30`);
  await Promise.all([post("/v1/programs", mapReduce), post("/v1/programs", mapReduce), late]);
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);

  const kinds = new Set<string>(readRecording(recording).entries.map(({ kind }) => kind));
  expect(["call", "expect", "forget", "raise"].filter((kind) => !kinds.has(kind))).toEqual([]);
  const replay = Program.bunting(["simulate", "--replay", recording]);
  expect([await replay.exitCode(), replay.errors]).toEqual([0, ""]);
  expect(replay.output).toContain("9 calls and ");
  expect(replay.output).toContain("Run again, the scheduler decides the same, step by step.");
}, 60_000);

test("adapters repeat too, apart from each other", async () => {
  const recording = join(scratch, "adapters");
  const folders = ["sql", "law"].map((name, seed) => {
    const folder = join(scratch, name);
    writeAdapter(demoFolder, folder, { seed, rank: 4, alpha: 8 });
    return folder;
  });
  const program = Program.bunting([
    ...["serve", "--device", "simulated", "--port", "0", "--record", recording],
    ...["--lora", `sql=${folders[0]}`, "--lora", `law=${folders[1]}`],
  ]);
  const url = await program.url();
  const messages = [{ role: "user", content: "A long story. ".repeat(30) }];
  const texts = new Set<string>();
  for (const model of ["demo", "sql", "law", "sql"]) {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model, messages, temperature: 0, max_tokens: 8, ignore_eos: true }),
    });
    const { choices } = (await response.json()) as { choices: [{ message: { content: string } }] };
    texts.add(choices[0].message.content);
  }
  expect(texts.size).toBe(3);
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);

  const { entries } = readRecording(recording);
  const ids = entries.flatMap((entry) => (entry.kind === "call" ? [entry.sequence.adapter] : []));
  expect([ids[0], new Set(ids).size, ids[1] === ids[3]]).toEqual([0, 3, true]);
  expect(Math.max(...ids)).toBeGreaterThan(2 ** 32);
  const replay = Program.bunting(["simulate", "--replay", recording, "--what-if", "engines=1"]);
  expect([await replay.exitCode(), replay.errors]).toEqual([0, ""]);
  expect(replay.output).toContain("Run again, the scheduler decides the same, step by step.");
}, 60_000);

test("what is no recording, and changes that are none, are refused", async () => {
  const other = join(scratch, "other");
  writeFileSync(other, "something else");
  const refusals: readonly (readonly [args: readonly string[], sentence: string])[] = [
    [["--replay", other], `${other} is no recording.`],
    [["--replay", file, "--what-if", "speed=2"], '"speed=2" changes none of policy, engines, tbt-ms'],
    [["--what-if", "engines=1"], "--what-if is about a recording: --replay."],
    [["--record", other, "--policy", "ours", "--policy", "vllm"], "--record writes down one simulation"],
  ];
  for (const [args, sentence] of refusals) {
    const program = Program.bunting(["simulate", ...args]);
    expect(await program.exitCode()).toBe(1);
    expect(program.errors).toStartWith(sentence);
  }
}, 60_000);
