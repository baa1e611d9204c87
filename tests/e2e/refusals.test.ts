/** Refusals at the start: `serve` ends with one sentence, and `doctor --json` reports the same. */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DoctorReport } from "../../server/cli/doctor-report.ts";
import { Program } from "./program.ts";
import { demoFolder } from "./server.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-refusals-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const empty = join(scratch, "no-model");
const file = join(scratch, "a-file");
const unknown = join(scratch, "unknown");
const noModels = join(scratch, "no-models");
const [misspelt, notToml, badModel] = ["misspelt", "not-toml", "bad-model"].map((name) =>
  join(scratch, `${name}.toml`),
) as [string, string, string];

beforeAll(() => {
  writeFileSync(file, "short");
  mkdirSync(noModels);
  cpSync(demoFolder, unknown, { recursive: true });
  const { model_type: _, ...config } = JSON.parse(readFileSync(join(demoFolder, "config.json"), "utf8"));
  const own = { ...config, model_type: "quantum", architectures: ["QuantumForCausalLM"] };
  writeFileSync(join(unknown, "config.json"), JSON.stringify(own));
  writeFileSync(misspelt, "prot = 3\n");
  writeFileSync(notToml, "port = = 3\n");
  writeFileSync(badModel, `[model.one]\npath = "${empty}"\n`);
});

async function doctorReport(args: readonly string[]): Promise<readonly [exitCode: number, DoctorReport]> {
  const program = Program.bunting(["doctor", "--json", ...args]);
  const exitCode = await program.exitCode();
  return [exitCode, JSON.parse(program.output) as DoctorReport];
}

async function serveErrors(args: readonly string[]): Promise<string> {
  const program = Program.bunting(["serve", ...args]);
  expect(await program.exitCode()).toBe(1);
  return program.errors.trim();
}

describe("what cannot work is refused in one sentence, which doctor knows", () => {
  const simulated = ["--device", "simulated"];
  const refused: readonly (readonly [name: string, args: readonly string[], sentence: RegExp])[] = [
    [
      "an open address without a key",
      ["--host", "0.0.0.0"],
      /^Others can reach 0\.0\.0\.0: give an --api-key .*--insecure/,
    ],
    [
      "an address of another machine",
      ["--insecure", "--host", "192.0.2.1"],
      /^192\.0\.2\.1 is not an address of this machine\.$/,
    ],
    ["a folder that is not there", [empty], /no-model: does not exist; wanted: /],
    [
      "a context beyond the model's",
      ["--max-model-len", "4096"],
      /^--max-model-len 4096 is more than the 2048 tokens/,
    ],
    [
      "a context beyond what a scaling gives",
      ["--max-model-len", "8193", "--rope-scaling", '{"rope_type": "yarn", "factor": 4}'],
      /^--max-model-len 8193 is more than the 8192 tokens/,
    ],
    [
      "a scaling of no known kind",
      ["--rope-scaling", '{"rope_type": "spiral", "factor": 4}'],
      /^--rope-scaling: rope_type: "spiral": supported rope types/,
    ],
    [
      "a KV cache without room for one sequence",
      ["--kv-cache-gib", "0.001"],
      /^The model does not fit: a KV cache of .* holds \d+ tokens/,
    ],
    ["a key file that is not there", ["--api-key-file", empty], /^No API key can be taken from .*no-model/],
    [
      "more engines than threads",
      ["--device", "cpu:3", "--threads", "2"],
      /^--device cpu:3 asks for 3 engines, but there are 2 threads to share/,
    ],
    [
      "a recording that cannot be written",
      ["--device", "simulated", "--record", join(empty, "recording")],
      /^The recording cannot be written: .*no-model/,
    ],
    ["a model of no known kind", [unknown], /QuantumForCausalLM/],
    ["a name that is no model", ["./nowhere/model.gguf"], /nowhere/],
    ["an option of several models for one", ["--pin", "demo"], /^--pin is for several models/],
    [
      "an argument beside several models",
      ["--model", `one=${demoFolder}`, demoFolder],
      /is the argument of a server of one model/,
    ],
    [
      "an option of one model for several",
      ["--model", `one=${demoFolder}`, "--parrot-api", ...simulated],
      /^--parrot-api is for a server of one model/,
    ],
    ["a folder without models", ["--models", noModels], /has no model/],
    ["one of several models that is not there", ["--config", badModel], /^The model one cannot be served: /],
    [
      "more than the memory of several models",
      ["--model", `one=${demoFolder}`, "--memory", "1MiB", "--device", "cpu"],
      /^The model one takes .*, and --memory is 1\.0 MiB/,
    ],
    ["a format that the device lacks", ["--quant", "fp8", "--device", "cpu"], /^--quant fp8: a CPU has/],
    ["an adapter that is not there", ["--lora", `a=${empty}`, ...simulated], /^--lora a=.*no-model/],
    [
      "an adapter for several models",
      ["--lora", `a=${empty}`, "--model", `one=${demoFolder}`, ...simulated],
      /^--lora is for a server of one model, .*: a model's table in the file of --config has `lora`\.$/,
    ],
    ["keys in a format that the device lacks", ["--kv", "fp8", "--device", "cpu"], /^--kv fp8: a CPU keeps/],
    [
      "a library that is for GPUs",
      ["--gemm", "cublaslt", "--device", "cpu"],
      /^--gemm cublaslt: it is for GPUs/,
    ],
    [
      "drafts of a model without a head",
      ["--speculate", "mtp", "--device", "cpu"],
      /^--speculate mtp: the model has no whole head/,
    ],
    [
      "a draft model that is not there",
      ["--draft-model", empty, "--device", "cpu"],
      /^--draft-model .*no-model: does not exist; /,
    ],
    ["a draft model of a simulated device", ["--draft-model", demoFolder, ...simulated], /^--draft-model/],
    ["a folder that is a file", [...simulated, "--data", file], /a-file/],
    [
      "use that cannot be kept",
      [...simulated, "--data", file, "--quota", "key=5"],
      /^The use of keys cannot be kept in .*; --data names another folder\.$/,
    ],
    [
      "a disk key of a wrong length",
      ["--device", "cpu", "--kv-disk", "1", "--kv-disk-key-file", file],
      /^--kv-disk-key-file .* has 5 bytes; a key is 32 bytes/,
    ],
    [
      "a public text that is not there",
      [...simulated, "--public-prefix", empty],
      /^--public-prefix .*no-model/,
    ],
    ["a chat template that is not there", [...simulated, "--chat-template", empty], /no-model/],
    ["programs that are not there", [...simulated, "--programs", empty], /no-model/],
    ["a misspelt key of the file", ["--config", misspelt], /prot is not a setting; did you mean port\?$/],
    ["a file that is not TOML", ["--config", notToml], /^.*not-toml\.toml is not TOML: /],
    ["a file that is not there", ["--config", empty], /^--config .*no-model/],
  ];

  test.each(refused)("%s", async (_name, args, sentence) => {
    const given = ["--port", "0", ...args];
    const [errors, [exitCode, report]] = await Promise.all([serveErrors(given), doctorReport(given)]);
    const lines = errors.split("\n").filter((line) => !line.startsWith("  - "));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(sentence);
    expect([exitCode, report.wouldStart]).toEqual([1, false]);
    expect(report.refusals[0]).toBe(errors);
  });

  test("a port that is in use", async () => {
    const taken = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response() });
    const given = ["--port", String(taken.port), ...simulated];
    const sentence = `Port ${taken.port} on 127.0.0.1 is in use; choose another with --port.`;
    expect(await serveErrors(given)).toBe(sentence);
    const [exitCode, report] = await doctorReport(given);
    expect([exitCode, report.refusals, report.address.isFree]).toEqual([1, [sentence], false]);
    await taken.stop(true);
  });

  test.each([
    ["a quota without a number", ["--quota", "key=many"]],
    ["a port beyond all", ["--port", "70000"]],
  ])("%s: both commands end before they read anything else", async (_name, args) => {
    const doctor = Program.bunting(["doctor", "--json", ...args]);
    expect([await doctor.exitCode(), doctor.output]).toEqual([1, ""]);
    expect(doctor.errors.split("\n")[0]).toBe((await serveErrors(args)).split("\n")[0]!);
  });
});

test("doctor reports everything that refuses a start, in the order of serve", async () => {
  const [, report] = await doctorReport([
    ...["--device", "simulated", "--port", "0", "--host", "0.0.0.0"],
    ...["--max-model-len", "9999", "--record", join(empty, "recording"), "--data", file],
  ]);
  expect(report.refusals).toEqual([
    expect.stringMatching(/^Others can reach 0\.0\.0\.0/),
    expect.stringMatching(/^--max-model-len 9999/),
    expect.stringMatching(/^The use of keys cannot be kept/),
    expect.stringMatching(/^The recording cannot be written/),
  ]);
});

test("doctor leaves no new folder, and no other recording, behind", async () => {
  const recording = join(scratch, "kept.recording");
  writeFileSync(recording, "of yesterday");
  const before = readdirSync(scratch);
  const [exitCode, report] = await doctorReport([
    ...["--device", "simulated", "--port", "0", "--record", recording],
    ...["--data", join(scratch, "new/data")],
  ]);
  expect([exitCode, report.wouldStart]).toEqual([0, true]);
  expect(readdirSync(scratch)).toEqual(before);
  expect(readFileSync(recording, "utf8")).toBe("of yesterday");
});

test("doctor --json describes machine and model, and estimates its speed", async () => {
  const [exitCode, report] = await doctorReport(["--device", "cpu", "--port", "0", "--dtype", "bf16"]);
  expect(exitCode).toBe(0);
  expect(report).toMatchObject({
    schema: 1,
    wouldStart: true,
    refusals: [],
    device: { kind: "cpu", reason: "it was asked for" },
    gpus: [],
    models: [],
    address: { host: "127.0.0.1", port: 0, isFree: true },
  });
  const { processor, model, speed } = report;
  expect(processor!.instructionSets.filter(({ state }) => state === "used")).toHaveLength(1);
  expect(model!.memory.map(({ name }) => name)).toContain("KV cache");
  const { promptTokensPerSecond, streamTokensPerSecond, readBytesPerSecond } = speed!;
  for (const rate of [promptTokensPerSecond, streamTokensPerSecond, readBytesPerSecond])
    expect(rate).toBeGreaterThan(0);
  expect(["memory", "arithmetic"]).toContain(speed!.streamLimit);
});
