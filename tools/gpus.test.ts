import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { DriverReport } from "../gpu/cuda-driver.ts";

const folder = mkdtempSync(join(tmpdir(), "bunting-libcuda-"));
const root = resolve(import.meta.dir, "..");
beforeAll(() => {
  const source = join(root, "tests/support/fake-libcuda.c");
  const { exitCode } = Bun.spawnSync(["cc", "-shared", "-fPIC", source, "-o", join(folder, "libcuda.so.1")]);
  expect(exitCode).toBe(0);
});
afterAll(() => rmSync(folder, { recursive: true }));

async function outputOf(state: string, ...args: readonly string[]): Promise<string> {
  const env = { ...process.env, LD_LIBRARY_PATH: folder, FAKE_CUDA: state };
  const child = Bun.spawn([process.execPath, ...args], { env, cwd: root, stdout: "pipe", stderr: "pipe" });
  return await child.stdout.text();
}

async function reportOf(state: string): Promise<DriverReport> {
  return JSON.parse(await outputOf(state, "tools/gpus.ts")) as DriverReport;
}

describe("the driver's GPUs, or the reason why there is none", () => {
  test("a GPU", async () => {
    const gpus = [{ name: "NVIDIA Test", capability: 90 }];
    expect(await reportOf("")).toEqual({ gpus, cuda: 130, problem: null });
  });

  test("a part of a GPU", async () => {
    const { gpus } = await reportOf("mig");
    expect(gpus.map(({ name }) => name)).toEqual(["NVIDIA A100-SXM4-40GB MIG 1g.5gb"]);
  });

  test.each([
    ["none", 130, "the NVIDIA driver finds no GPU (with MIG turned on, a GPU needs an instance)"],
    [
      "too old",
      114,
      "the NVIDIA driver is too old: it speaks CUDA 11.4, and Bunting needs 12.0 (driver 525) or newer",
    ],
    [
      "old gpu",
      130,
      "GPU 0 (NVIDIA Test) is too old: it has compute capability 7.5, and Bunting needs 8.0 or newer",
    ],
    ["no memory", 130, "GPU 0 (NVIDIA Test) has no memory left: other programs have taken it"],
    ["lost", 130, "GPU 0 (NVIDIA Test) is lost: CUDA_ERROR_ECC_UNCORRECTABLE"],
    ["mismatch", 130, "the NVIDIA driver does not start: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"],
  ])("%s", async (state, cuda, problem) => {
    expect(await reportOf(state)).toEqual({ gpus: [], cuda, problem });
  });
});

describe("the server without a CUDA engine says why it computes on the CPU", () => {
  const hasEngine = existsSync(join(root, "build/native/cuda/libbunting_cuda.so"));

  test.skipIf(hasEngine || existsSync(join(root, "build/native/here/libbunting_cuda.so")))(
    "and which command would build the engine",
    async () => {
      const said = await outputOf("", "server/main.ts", "doctor");
      expect(said).toContain(
        "there is 1 × NVIDIA Test, but this build has no CUDA engine: `npm run setup -- --cuda` builds one",
      );
      expect(await outputOf("none", "server/main.ts", "doctor")).toContain(
        "cuda            not used: the NVIDIA driver finds no GPU",
      );
    },
  );
});
