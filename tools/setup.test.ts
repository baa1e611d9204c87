import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { platformProblem } from "./setup.mjs";

describe("what is missing is told in one sentence", () => {
  const path = mkdtempSync(join(tmpdir(), "bunting-path-"));
  const node = Bun.which("node");
  if (node === null) throw new Error("these tests need node, as npm does");
  symlinkSync(node, join(path, "node"));
  afterAll(() => rmSync(path, { recursive: true }));

  async function errorsOf(args: readonly string[]): Promise<string> {
    const script = Bun.spawn([join(path, "node"), ...args], {
      env: { PATH: path },
      stdout: "pipe",
      stderr: "pipe",
    });
    const errors = await script.stderr.text();
    expect(await script.exited).toBe(1);
    return errors;
  }
  const entry = resolve(import.meta.dir, "run.cjs");

  test("cmake", async () => {
    expect(await errorsOf([entry, "setup"])).toBe(
      "cmake is missing: install it (Debian: apt install cmake g++) and try again.\n",
    );
  });

  test("a Node that is new enough", async () => {
    const pretend = `Object.defineProperty(process.versions, "node", { value: "12.22.0" });`;
    expect(await errorsOf(["-e", `${pretend} require(${JSON.stringify(entry)})`, "start"])).toBe(
      "Node 12.22.0 is too old: Bunting needs Node 18 or newer.\n",
    );
  });

  test("a platform that is known", () => {
    expect(platformProblem("darwin", "arm64")).toBe(
      "Bunting runs on Linux on x64 or arm64; this is darwin on arm64.",
    );
    expect(platformProblem("linux", "ia32")).toBe(
      "Bunting runs on Linux on x64 or arm64; this is linux on ia32.",
    );
    expect([platformProblem("linux", "x64"), platformProblem("linux", "arm64")]).toEqual([null, null]);
  });
});
