import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { filesToBuild } from "./progress.mjs";

const folder = mkdtempSync(join(tmpdir(), "bunting-native-"));
afterAll(() => rmSync(folder, { recursive: true }));

async function output(...command: string[]): Promise<string> {
  const child = Bun.spawn(command, { stdout: "pipe", stderr: "pipe" });
  const [text] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  return text;
}

test("the engine for one machine compiles few files, which the engine for all machines needs too", async () => {
  const levels = process.arch === "x64" ? "avx2;avx2_vnni;portable" : "portable";
  await output("cmake", "-S", resolve(import.meta.dir, "../csrc"), "-B", folder, `-DBUNTING_HERE=${levels}`);
  const objectsOf = async (target: string): Promise<string[]> => {
    const plan = await output("cmake", "--build", folder, "--target", target, "--", "-n", "-k");
    return filesToBuild(plan).filter((file) => !file.includes(`${target}.dir`)); // engine.cpp is small
  };
  const [here, all] = [await objectsOf("bunting_cpu_here"), await objectsOf("bunting_cpu")];
  const shared = here.filter((file) => !file.includes("bunting_dispatch_here.dir"));
  expect(shared.length).toBe(here.length - 1);
  expect(all).toEqual(expect.arrayContaining(shared));
  const kernels = here.filter((file) => file.includes("kernels_"));
  expect(kernels.filter((file) => file.includes("/gemm_grouped.cpp"))).toHaveLength(1);
  if (process.arch === "x64") {
    expect(kernels.every((file) => /kernels_avx2_(rest|vnni_gemm)\.dir/.test(file))).toBe(true);
    expect(all.length).toBeGreaterThan(2 * here.length);
  }
}, 60_000);
