/** Commands `bunting batch` and `bunting jobs` as a user runs them. */

import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Program } from "./program.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "bunting-batch-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const LINES = 4000;

function lineOf(index: number, more: object = {}): string {
  const body = { prompt: `line ${index} of a long file`, max_tokens: 4, ...more };
  return JSON.stringify({ custom_id: String(index), method: "POST", url: "/v1/completions", body });
}

function idsOf(path: string): number[] {
  const lines = readFileSync(path, "utf8").trimEnd().split("\n");
  return lines.map((line) => Number((JSON.parse(line) as { readonly custom_id: string }).custom_id));
}

/** Path of the command's state file for its batch. */
function stateOf(output: string): string {
  return join(`${output}.job`, "state.json");
}

/** Resolves when the command has recorded the id of its batch. */
async function hasBegun(output: string): Promise<void> {
  await hasBegunIn(`${output}.job`);
}

async function hasBegunIn(job: string): Promise<void> {
  const path = join(job, "state.json");
  while (!existsSync(path) || (JSON.parse(readFileSync(path, "utf8")) as { batch: unknown }).batch === null)
    await new Promise((resolve) => setImmediate(resolve));
}

/** Polls `look` until it finds something, and returns that. */
async function some<Found>(look: () => readonly Found[]): Promise<readonly Found[]> {
  for (;;) {
    const found = look();
    if (found.length > 0) return found;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

test("a job that was stopped by Ctrl-C goes on with the same command", async () => {
  const [input, output] = [join(folder, "in.jsonl"), join(folder, "out.jsonl")];
  writeFileSync(input, Array.from({ length: LINES }, (_, index) => lineOf(index)).join("\n"));
  const command = ["batch", input, "-o", output, "--device", "simulated"];
  const first = Program.bunting(command);
  await hasBegun(output);
  first.signal("SIGINT");
  expect(await first.exitCode()).toBe(130);
  expect(existsSync(output)).toBe(false);

  const second = Program.bunting(command);
  expect([await second.exitCode(), second.errors]).toEqual([0, expect.any(String)]);
  expect(second.output).toBe(`${LINES} answered, 0 failed: ${output}\n`);
  expect(idsOf(output)).toEqual(Array.from({ length: LINES }, (_, index) => index));
  expect(readdirSync(folder).sort()).toEqual(["in.jsonl", "out.jsonl"]);
}, 60_000);

test("prompts come from standard input and answers go to standard output", async () => {
  const lines = [lineOf(0), lineOf(1, { temperature: 9 }), lineOf(2)];
  const requests = Program.bunting(["batch", "-", "-o", "-", "--device", "simulated"]);
  for (const line of lines) requests.type(line);
  requests.endInput();
  expect([await requests.exitCode(), requests.errors]).toEqual([3, "2 answered, 1 failed.\n"]);
  const results = requests.output.trimEnd().split("\n");
  expect(results.map((line) => JSON.parse(line))).toEqual([
    expect.objectContaining({ custom_id: "0", error: null }),
    expect.objectContaining({ custom_id: "1", response: expect.objectContaining({ status_code: 400 }) }),
    expect.objectContaining({ custom_id: "2", error: null }),
  ]);

  const output = join(folder, "out.jsonl");
  const prompts = Program.bunting(["batch", "-", "-o", output, "--max-tokens", "4", "--device", "simulated"]);
  for (const line of ["one", "", "two"]) prompts.type(line);
  prompts.endInput();
  expect([await prompts.exitCode(), prompts.output]).toEqual([0, `2 answered, 0 failed: ${output}\n`]);
  expect(idsOf(output)).toEqual([1, 2]);
  expect(readdirSync(folder)).toEqual(["out.jsonl"]);
}, 60_000);

test("a job without a file for its results is cancelled when it is stopped, and leaves nothing", async () => {
  const data = join(folder, "data");
  const server = Program.bunting(["serve", "--device", "simulated", "--port", "0", "--data", data]);
  const url = await server.url();
  const environment = { ...(process.env as Record<string, string>), TMPDIR: folder };
  const program = Program.bunting(["batch", "-", "-o", "-", "--url", url], { environment });
  for (let line = 0; line < LINES; line++) program.type(lineOf(line, { max_tokens: 1000, ignore_eos: true }));
  program.endInput();
  const [scratch] = await some(() => readdirSync(folder).filter((name) => name.startsWith("bunting-batch-")));
  await hasBegunIn(join(folder, scratch!, "job"));
  program.signal("SIGTERM");
  expect([await program.exitCode(), program.output]).toEqual([143, ""]);
  expect(program.errors).toContain("the job is cancelled");
  const list = Program.bunting(["jobs", "list", "--url", url]);
  expect([await list.exitCode(), list.output]).toEqual([0, expect.stringMatching(/cancell(ing|ed)$/m)]);
  server.signal("SIGTERM");
  expect(await server.exitCode()).toBe(0);
  expect(readdirSync(folder)).toEqual(["data"]);
}, 60_000);

test("a server keeps jobs in its model's own folder, which a second one does without", async () => {
  const input = join(folder, "in.jsonl");
  writeFileSync(input, lineOf(0));
  const environment = { ...(process.env as Record<string, string>), XDG_DATA_HOME: join(folder, "home") };
  const serve = ["serve", "--device", "cpu", "--port", "0", "--kv-cache-gib", "0.1"];
  const first = Program.bunting(serve, { environment });
  const url = await first.url();
  const kept = join(folder, "home", "bunting", "demo");
  expect(first.output).toContain(`Jobs are kept in ${kept}.\n`);
  const second = Program.bunting(serve, { environment });
  const secondUrl = await second.url();
  expect(second.output).toMatch(
    /^This server keeps no files and runs no batches: .* is used by another server; --data <folder> .*\.$/m,
  );

  const [output, none] = [join(folder, "out.jsonl"), join(folder, "none.jsonl")];
  const run = Program.bunting(["batch", input, "-o", output, "--url", url]);
  expect([await run.exitCode(), run.output]).toEqual([0, `1 answered, 0 failed: ${output}\n`]);
  const refused = Program.bunting(["batch", input, "-o", none, "--url", secondUrl]);
  expect([await refused.exitCode(), refused.errors]).toEqual([
    1,
    expect.stringMatching(
      /no folder for them.*--data <folder>.*\. Without --url a server is started for the job\.\n$/,
    ),
  ]);
  for (const server of [first, second]) {
    server.signal("SIGTERM");
    expect(await server.exitCode()).toBe(0);
  }
  const again = Program.bunting(serve, { environment });
  const list = Program.bunting(["jobs", "list", "--url", await again.url()]);
  expect([await list.exitCode(), list.output]).toEqual([0, expect.stringMatching(/ 1 +1 +0 +completed$/m)]);
  again.signal("SIGTERM");
  expect(await again.exitCode()).toBe(0);
}, 60_000);

test("on a server, failed lines keep their places if they are to, and the server tells of its jobs", async () => {
  const [input, output] = [join(folder, "in.jsonl"), join(folder, "out.jsonl")];
  writeFileSync(input, [lineOf(0), lineOf(1, { temperature: 9 }), lineOf(2)].join("\n"));
  const data = join(folder, "data");
  const server = Program.bunting(["serve", "--device", "simulated", "--port", "0", "--data", data]);
  const url = await server.url();
  const ordered = Program.bunting(["batch", input, "-o", output, "--ordered", "--url", url]);
  expect([await ordered.exitCode(), ordered.output]).toEqual([3, `2 answered, 1 failed: ${output}\n`]);
  expect(idsOf(output)).toEqual([0, 1, 2]);
  const apart = join(folder, "apart.jsonl");
  const split = Program.bunting(["batch", input, "-o", apart, "--url", url]);
  expect([await split.exitCode(), split.output]).toEqual([
    3,
    `2 answered, 1 failed (${apart}.errors): ${apart}\n`,
  ]);
  expect([idsOf(apart), idsOf(`${apart}.errors`)]).toEqual([[0, 2], [1]]);

  const list = Program.bunting(["jobs", "list", "--url", url]);
  expect(await list.exitCode()).toBe(0);
  const [, id] = /^(batch_\S+) .* 3 +2 +1 +completed$/m.exec(list.output)!;
  expect(list.output.match(/^batch_/gm)).toHaveLength(2);
  for (const what of ["show", "cancel"]) {
    const one = Program.bunting(["jobs", what, id!, "--url", url]);
    expect([await one.exitCode(), JSON.parse(one.output)]).toEqual([
      0,
      expect.objectContaining({ id, status: "completed" }),
    ]);
  }
  server.signal("SIGTERM");
  expect(await server.exitCode()).toBe(0);
}, 60_000);

test("a job whose server is killed goes on with it, and the same command waits for it again", async () => {
  const [input, output] = [join(folder, "in.jsonl"), join(folder, "out.jsonl")];
  writeFileSync(input, Array.from({ length: LINES }, (_, index) => lineOf(index)).join("\n"));
  const serve = ["serve", "--device", "simulated", "--port", "0", "--data", join(folder, "data")];
  const run = (url: string) => Program.bunting(["batch", input, "-o", output, "--url", url]);
  const killed = Program.bunting(serve);
  const first = run(await killed.url());
  await hasBegun(output);
  killed.signal("SIGKILL");
  expect(await first.exitCode()).toBe(1);
  expect(first.errors).toMatch(
    /(No server answers at|broke off).* The same command goes on where this one was\.\n$/,
  );

  const server = Program.bunting(serve);
  const second = run(await server.url());
  expect([await second.exitCode(), second.output]).toEqual([0, `${LINES} answered, 0 failed: ${output}\n`]);
  expect(idsOf(output)).toEqual(Array.from({ length: LINES }, (_, index) => index));
  server.signal("SIGTERM");
  expect(await server.exitCode()).toBe(0);
}, 60_000);

test("a job that another command cancels keeps what is done", async () => {
  const [input, output] = [join(folder, "in.jsonl"), join(folder, "out.jsonl")];
  writeFileSync(input, Array.from({ length: LINES }, (_, index) => lineOf(index)).join("\n"));
  const data = join(folder, "data");
  const server = Program.bunting(["serve", "--device", "simulated", "--port", "0", "--data", data]);
  const url = await server.url();
  const running = Program.bunting(["batch", input, "-o", output, "--url", url]);
  await hasBegun(output);
  const { batch: id } = JSON.parse(readFileSync(stateOf(output), "utf8")) as { readonly batch: string };
  const cancel = Program.bunting(["jobs", "cancel", id, "--url", url]);
  expect(await cancel.exitCode()).toBe(0);
  expect(await running.exitCode()).toBe(3);
  expect(running.errors).toContain("The job is cancelled: lines that had not run by then failed.");
  const answered = readFileSync(output, "utf8").trim() === "" ? [] : idsOf(output);
  const all = [...answered, ...idsOf(`${output}.errors`)].sort((a, b) => a - b);
  expect(all).toEqual(Array.from({ length: LINES }, (_, index) => index));
  server.signal("SIGTERM");
  expect(await server.exitCode()).toBe(0);
}, 60_000);

test("a command that died before it noted its batch begins no second one", async () => {
  const [input, output] = [join(folder, "in.jsonl"), join(folder, "out.jsonl")];
  writeFileSync(input, Array.from({ length: LINES }, (_, index) => lineOf(index)).join("\n"));
  const data = join(folder, "data");
  const server = Program.bunting(["serve", "--device", "simulated", "--port", "0", "--data", data]);
  const url = await server.url();
  const command = ["batch", input, "-o", output, "--url", url];
  const first = Program.bunting(command);
  await hasBegun(output);
  first.signal("SIGKILL");
  await first.exitCode();
  const kept = JSON.parse(readFileSync(stateOf(output), "utf8")) as object;
  writeFileSync(stateOf(output), JSON.stringify({ ...kept, batch: null }));

  const second = Program.bunting(command);
  expect([await second.exitCode(), second.output]).toEqual([0, `${LINES} answered, 0 failed: ${output}\n`]);
  const list = Program.bunting(["jobs", "list", "--url", url]);
  expect(await list.exitCode()).toBe(0);
  expect(list.output.match(/^batch_/gm)).toHaveLength(1);
  server.signal("SIGTERM");
  expect(await server.exitCode()).toBe(0);
}, 60_000);

test("rows of CSV and lines of text are prompts, and are answered in their order", async () => {
  const data = join(folder, "data");
  const server = Program.bunting(["serve", "--device", "simulated", "--port", "0", "--data", data]);
  const url = await server.url();
  const files = { "in.csv": 'name,city\n"Ann, of old",Rome\nBob,Oslo\n', "in.txt": "one\n\ntwo\n" };
  for (const [name, text] of Object.entries(files)) {
    const [input, output] = [join(folder, name), join(folder, `${name}.out`)];
    writeFileSync(input, text);
    const template = name === "in.csv" ? ["--prompt-template", "Write to {name} in {city}."] : [];
    const run = Program.bunting([
      "batch",
      input,
      "-o",
      output,
      "--max-tokens",
      "4",
      ...template,
      "--url",
      url,
    ]);
    expect([await run.exitCode(), run.output]).toEqual([0, `2 answered, 0 failed: ${output}\n`]);
    expect(idsOf(output)).toEqual([1, 2]);
  }
  server.signal("SIGTERM");
  expect(await server.exitCode()).toBe(0);
}, 60_000);

test("what cannot be run is said in a sentence, with the line", async () => {
  const [input, output] = [join(folder, "in.jsonl"), join(folder, "out.jsonl")];
  writeFileSync(input, [lineOf(0), "", "{"].join("\n"));
  const broken = Program.bunting(["batch", input, "-o", output, "--device", "simulated"]);
  expect(await broken.exitCode()).toBe(1);
  expect(broken.errors).toContain("Line 3: The line is not valid JSON");
  for (const wrong of [["--prompt-template", "{line}"], [join(folder, "no-model")]]) {
    const refused = Program.bunting(["batch", input, "-o", output, ...wrong]);
    expect(await refused.exitCode()).toBe(1);
  }
  const server = Program.bunting(["serve", "--device", "simulated", "--port", "0"]);
  const nowhere = Program.bunting(["batch", input, "-o", output, "--url", await server.url()]);
  expect([await nowhere.exitCode(), nowhere.errors]).toEqual([1, expect.stringContaining("--data")]);
  server.signal("SIGTERM");
  expect(await server.exitCode()).toBe(0);
  expect(existsSync(`${output}.job`)).toBe(false);
  writeFileSync(output, "");
  const twice = Program.bunting(["batch", input, "-o", output]);
  expect([await twice.exitCode(), twice.errors]).toEqual([
    1,
    `${output} exists already: remove it, or name another file with -o.\n`,
  ]);
}, 60_000);
