import { expect, test } from "bun:test";
import { homedir } from "node:os";
import { join } from "node:path";
import { Command, CommanderError } from "commander";
import { addOptions, optionValues } from "./cli/options.ts";
import { type Config, isLoopback, makeConfig, serverSettings } from "./config.ts";

function parse(args: readonly string[], environment: Record<string, string> = {}): Config {
  const command = new Command("serve").exitOverride().configureOutput({ writeErr: () => {} });
  const before = { ...process.env };
  Object.assign(process.env, environment);
  try {
    addOptions(command, { settings: serverSettings, headings: {} });
    command.parse(args, { from: "user" });
    return optionValues(command, serverSettings);
  } finally {
    for (const name of Object.keys(environment)) delete process.env[name];
    Object.assign(process.env, before);
  }
}

test("no arguments give the defaults", () => {
  expect(parse([])).toEqual(makeConfig());
  expect(parse([])).toMatchObject({
    host: "127.0.0.1",
    port: 8000,
    insecure: false,
    apiKey: [],
    apiKeyFile: null,
  });
});

test("options are parsed to values", () => {
  const args = "--port 8123 --device cpu:4 --dtype f32 --kv-cache-gib 1.5 --insecure --api-key a --api-key b";
  expect(parse(args.split(" "))).toEqual(
    makeConfig({
      port: 8123,
      device: { kind: "cpu", engines: 4 },
      dtype: "f32",
      kvCacheGib: 1.5,
      insecure: true,
      apiKey: ["a", "b"],
    }),
  );
});

test("an environment variable wins over the default, an option over both", () => {
  expect(parse([], { BUNTING_PORT: "9000", BUNTING_API_KEY: "k" })).toEqual(
    makeConfig({ port: 9000, apiKey: ["k"] }),
  );
  expect(parse([], { BUNTING_API_KEY: "k, l" })).toEqual(makeConfig({ apiKey: ["k", "l"] }));
  expect(parse(["--port", "9001"], { BUNTING_PORT: "9000" })).toEqual(makeConfig({ port: 9001 }));
});

test("an adapter has a name and a path, in which commas and equals signs are letters", () => {
  const given = ["--lora", "sql=a=b,c", "--lora", "law=~/law"];
  expect(parse(given).lora).toEqual(["sql=a=b,c", `law=${join(homedir(), "law")}`]);
  for (const wrong of ["sql", "=path", "sql="])
    expect(() => parse(["--lora", wrong])).toThrow(
      `"${wrong}" is not a name and a path, such as sql=adapters/sql.`,
    );
});

test("a switch cannot be set by a variable, so that an empty one never opens a server", () => {
  expect(parse([], { BUNTING_INSECURE: "0" }).insecure).toBe(false);
});

test("a variable that is set to nothing is refused: it is no folder", () => {
  expect(() => parse([], { BUNTING_DATA: "" })).toThrow("from env 'BUNTING_DATA' is invalid. It is empty.");
});

test("hosts and origins are taken as clients send them", () => {
  const given = [
    "--allow-host",
    "Chat.Example",
    "--cors-origin",
    "https://Chat.Example:443/,tauri://localhost,https://*.Chat.Example,http://localhost:*,*",
  ];
  expect(parse(given)).toEqual(
    makeConfig({
      allowHost: ["chat.example"],
      corsOrigin: [
        "https://chat.example",
        "tauri://localhost",
        "https://*.chat.example",
        "http://localhost:*",
        "*",
      ],
    }),
  );
});

const refused: readonly (readonly [string, string])[] = [
  ["--port 70000", '"70000" is not a whole number between 0 and 65535.'],
  ["--port 80a", '"80a" is not a whole number between 0 and 65535.'],
  ["--kv-disk all", '"all" is not auto, nor a number between 0 and 65536.'],
  ["--threads 0", '"0" is not a whole number between 1 and 1024.'],
  ["--api-key=", '"" holds an empty key.'],
  ["--api-key=schlüssel", "An API key holds a space or a character beyond ASCII"],
  ["--admin-key=an\tadmin", "An API key holds a space or a character beyond ASCII"],
  ["--cors-origin https://a.example,", '"https://a.example," holds an empty origin.'],
  ["--cors-origin https://chat.example/page", '"https://chat.example/page" is not an origin'],
  ["--cors-origin https://*", '"https://*" is not an origin'],
  ["--cors-origin https://chat*.example", '"https://chat*.example" is not an origin'],
  ["--cors-origin *://chat.example", '"*://chat.example" is not an origin'],
  ["--cors-origin http://localhost:80:*", '"http://localhost:80:*" is not an origin'],
  ["--cors-origin http://localhost:8*", '"http://localhost:8*" is not an origin'],
  ["--cors-origin chat.example", '"chat.example" is not an origin'],
  ["--allow-host chat.example:8000", '"chat.example:8000" is not a name alone'],
  ["--data=", "It is empty."],
  ["--host=", "It is empty."],
  ["--port 1e3", '"1e3" is not a whole number between 0 and 65535.'],
  ["--device cpu:0", '"cpu:0" is not one of auto, cpu, cpu:N, cuda, cuda:i,j, emu, simulated, simulated:N.'],
  ["--device cuda:1,1", '"cuda:1,1" names a GPU twice.'],
  ["--dtype int8", '"int8" is not one of auto, bf16, f32.'],
  ["--quant q3", '"q3" is not one of auto, none, int8, q8_0, int6, int4, fp8.'],
  ["--shutdown-timeout-s -1", '"-1" is not a number between 0 and 86400.'],
  ["--queue-max 0", '"0" is not a whole number between 1 and 1000000.'],
  ["--ports 1", "unknown option '--ports'"],
];

test.each(refused)("%s is refused with a sentence", (args, sentence) => {
  try {
    parse(args.split(" "));
    throw new Error("it was accepted");
  } catch (error) {
    expect(error).toBeInstanceOf(CommanderError);
    expect((error as Error).message).toContain(sentence);
  }
});

test("loopback is what only this machine can reach", () => {
  expect(["127.0.0.1", "127.8.8.8", "localhost", "::1"].map(isLoopback)).toEqual([true, true, true, true]);
  expect(["0.0.0.0", "::", "10.0.0.1", "127.0.0.1.example.com", "host"].some(isLoopback)).toBe(false);
});
