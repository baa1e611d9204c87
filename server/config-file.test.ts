import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { addOptions, optionValues } from "./cli/options.ts";
import { makeConfig, parseDurationMs, serverSettings } from "./config.ts";
import { readConfigFile } from "./config-file.ts";
import { modelsOf } from "./models/model-settings.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-config-"));
afterAll(() => rmSync(scratch, { recursive: true }));
const file = join(scratch, "bunting.toml");

function read(text: string) {
  writeFileSync(file, text);
  return readConfigFile(file);
}

test("a file has the options' names, values and checks", () => {
  const { settings, models } = read(
    'port = 8123\nmemory = "2GiB"\nkeep-alive = "1h30m"\ninsecure = true\napi-key = ["a", "b"]\ndevice = "cpu:2"\n',
  );
  expect(settings).toEqual({
    port: 8123,
    memory: 2 * 2 ** 30,
    keepAlive: 5_400_000,
    insecure: true,
    apiKey: ["a", "b"],
    device: { kind: "cpu", engines: 2 },
  });
  expect(models).toEqual([]);
});

test("~/ in a path is the user's home, in files and in options", () => {
  const { settings, models } = read(
    'models = "~/models"\ndata = "~/data"\napi-key-file = "~/keys"\n[model.a]\npath = "~/a"\ntemplate = "~/a.jinja"\n',
  );
  const home = (name: string): string => join(homedir(), name);
  expect(settings).toEqual({
    models: home("models"),
    data: { folder: home("data") },
    apiKeyFile: home("keys"),
  });
  expect(models.map(({ path, template }) => [path, template])).toEqual([[home("a"), home("a.jinja")]]);
  expect(modelsOf(makeConfig({ model: ["b=~/b", "~/c"] }), null).map(({ path }) => path)).toEqual([
    home("b"),
    home("c"),
  ]);
});

test("a model's table has a path, and settings of its own", () => {
  const { models } = read(
    '[model.chat]\npath = "./chat"\npin = true\ntemplate = "chat.jinja"\nmax-model-len = 512\ndraft-model = "./small"\nlora = ["sql=adapters/sql", "law=/law=s"]\nsampling = { top-k = 3 }\n[model.hub]\npath = "a/b"\ndraft-model = "a/c"\n',
  );
  expect(models).toEqual([
    {
      name: "chat",
      path: join(scratch, "chat"),
      isPinned: true,
      template: join(scratch, "chat.jinja"),
      sampling: { "top-k": 3 },
      settings: {
        maxModelLen: 512,
        draftModel: join(scratch, "small"),
        lora: [`sql=${join(scratch, "adapters/sql")}`, "law=/law=s"],
      },
    },
    {
      name: "hub",
      path: "a/b",
      isPinned: false,
      template: null,
      sampling: {},
      settings: { draftModel: "a/c" },
    },
  ]);
});

test.each([
  ["prot = 1", "prot is not a setting; did you mean port?"],
  ["max_model_len = 1", "max_model_len is not a setting; did you mean max-model-len?"],
  ["something-else-altogether = 1", "something-else-altogether is not a setting."],
  ["port = 70000", 'port: "70000" is not a whole number between 0 and 65535.'],
  ["port = true", "port: It is not a text or a number, but true."],
  ["insecure = 1", "insecure: It is not true or false, but 1."],
  ['[model.a]\npaht = "x"', "model.a.path is not a path, but absent."],
  ['[model.a]\npath = "x"\npinn = true', "model.a.pinn is not a setting; did you mean pin?"],
  ['[model.a]\npath = "x"\napi-key = "k"', "model.a.api-key is not a setting."],
  [
    '[model.a]\npath = "x"\nsampling = { top-p = 2 }',
    "model.a.sampling.top-p is not a number from 0 to 1, but 2.",
  ],
  [
    '[model.a]\npath = "x"\nsampling = { topp = 1 }',
    "model.a.sampling.topp is not a setting; did you mean top-p?",
  ],
  ["port = ", "is not TOML: the entry in line 1: Missing value after '='"],
  [
    "port = 8123\n\n# Ours.\ndevice = cpu\nthreads = 3\n",
    'the entry in line 4: Strings must be quoted: "cpu"',
  ],
  ['api-key = [\n  "a",\n]\n[model.a\npath = "x"\n', "the entry in line 4: Expected ']'"],
  ['port = 1\r\napi-key = [\r\n  "a",\r\nport = 2\r\n', "the entry in line 2: Strings must be quoted"],
  ["port = 1\nqueue-max = 7\nport = 2\nthreads = 3\n", "the entry in line 3: Cannot redefine key 'port'"],
  [`${"#\n".repeat(1000)}port = `, "is not TOML: Missing value after '='"],
])("%j is refused", (text, message) => {
  expect(() => read(text)).toThrow(message);
});

test("a file that is not there is named", () => {
  expect(() => readConfigFile(join(scratch, "none.toml"))).toThrow(
    `--config ${join(scratch, "none.toml")} does not exist.`,
  );
});

test("options and variables win over the file, and the file over defaults", () => {
  writeFileSync(file, "port = 8123\nthreads = 3\nqueue-max = 7\n");
  const command = new Command("serve").exitOverride();
  process.env.BUNTING_THREADS = "2";
  try {
    addOptions(command, { settings: serverSettings, headings: {} });
    command.parse(["--config", file, "--port", "9000"], { from: "user" });
    expect(optionValues(command, serverSettings)).toEqual(
      makeConfig({ config: file, port: 9000, threads: 2, queueMax: 7 }),
    );
  } finally {
    delete process.env.BUNTING_THREADS;
  }
});

test.each([
  ["0", 0],
  ["0s", 0],
  ["5m", 300_000],
  ["1.5s", 1500],
  ["250ms", 250],
  ["90", 90_000],
  ["-1", Number.POSITIVE_INFINITY],
  ["-1m", Number.POSITIVE_INFINITY],
])("the duration %s", (text, ms) => {
  expect(parseDurationMs(text)).toBe(ms);
});

test.each(["", "soon", "5 m", "m", "1d"])("%j is no duration", (text) => {
  expect(() => parseDurationMs(text)).toThrow("is not a duration");
});
