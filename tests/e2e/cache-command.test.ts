/** `bunting cache`, and refusals of `--kv-disk`. */
import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Program } from "./program.ts";

setDefaultTimeout(60_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-cache-command-"));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));
const serve = ["serve", "--device", "cpu", "--port", "0", "--threads", "1"];

async function run(...args: string[]): Promise<readonly [code: number, output: string, errors: string]> {
  const program = Program.bunting(args);
  return [await program.exitCode(), program.output.trim(), program.errors.trim()];
}

test("the pages of a model are listed, kept while it is served, and cleared", async () => {
  const data = join(scratch, "data");
  const none = `There are no KV pages in ${join(data, "kv")}; --data <folder> names that of a server.`;
  const cache = (...args: string[]) => run("cache", ...args, "--data", data);
  expect(await cache()).toEqual([0, none, ""]);
  const program = Program.bunting([...serve, "--kv-disk", "0.5", "--data", data]);
  await program.url();
  expect(program.output).toContain(`KV pages are kept in ${join(data, "kv")}, 0.5 GiB at most.`);
  const [code, list] = await cache();
  expect([code, list]).toEqual([0, expect.stringMatching(/^model +size +last use +where\ndemo /)]);
  expect(await cache("clear", "demo")).toEqual([
    1,
    "0 bytes are free again.",
    expect.stringMatching(/^demo is being served; its pages in .* stay\.$/),
  ]);
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);
  expect(program.errors).not.toContain("KV cache");
  expect(await cache("--size")).toEqual([0, "0", ""]);
  expect((await cache("clear", "other"))[2]).toBe(
    "There are no KV pages of other on disk; `bunting cache` lists the models.",
  );
  expect((await cache("clear"))[0]).toBe(0);
  expect(await cache()).toEqual([0, none, ""]);
  expect((await cache("rm"))[2]).toBe(
    "bunting cache lists the KV pages on disk; bunting cache clear [model] removes them.",
  );
});

test("a key file that holds no key is refused", async () => {
  const file = join(scratch, "short.key");
  writeFileSync(file, "secret");
  for (const [path, sentence] of [
    [file, `--kv-disk-key-file ${file} has 6 bytes; a key is 32 bytes, or 64 hexadecimal digits.`],
    [join(scratch, "none"), `--kv-disk-key-file ${join(scratch, "none")} does not exist.`],
  ] as const) {
    const [code, , errors] = await run(
      ...serve,
      "--data",
      scratch,
      "--kv-disk",
      "1",
      "--kv-disk-key-file",
      path,
    );
    expect([code, errors]).toEqual([1, sentence]);
  }
});
