import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fetchNvcc, findDisassembler, newestWheel, nvccVersion } from "./cuda-toolkit.mjs";

const scratch = mkdtempSync(join(tmpdir(), "bunting-wheels-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const wheel = (filename: string, more: object = {}) => ({
  filename,
  url: `../files/${filename}`,
  hashes: { sha256: "0" },
  ...more,
});

test("the newest wheel of the release for this processor is chosen", () => {
  const files = [
    wheel("a-13.0.9-py3-none-manylinux_2_17_x86_64.whl"),
    wheel("a-13.0.88-py3-none-manylinux_2_17_x86_64.whl"),
    wheel("a-13.0.88-py3-none-manylinux_2_17_aarch64.whl"),
    wheel("a-13.0.90-py3-none-manylinux_2_17_x86_64.whl", { yanked: "broken" }),
    wheel("a-13.0.91-py3-none-manylinux_2_17_x86_64.whl", { hashes: {} }),
    wheel("a-13.1.1-py3-none-manylinux_2_17_x86_64.whl"),
    wheel("a-13.0.92-py3-none-win_amd64.whl"),
  ];
  expect(newestWheel({ files }, "13.0", "x64")?.filename).toBe(
    "a-13.0.88-py3-none-manylinux_2_17_x86_64.whl",
  );
  expect(newestWheel({ files }, "13.0", "arm64")?.filename).toBe(
    "a-13.0.88-py3-none-manylinux_2_17_aarch64.whl",
  );
  expect(newestWheel({ files }, "13.1", "x64")?.filename).toBe("a-13.1.1-py3-none-manylinux_2_17_x86_64.whl");
  expect(newestWheel({ files: files.slice(5) }, "13.0", "x64")).toBeNull();
});

/** Zip archive of one file, stored without compression. */
function zip(name: string, content: string): Uint8Array {
  const [path, data] = [Buffer.from(name), Buffer.from(content)];
  const common = Buffer.alloc(26);
  common.writeUInt16LE(20, 0); // version
  common.writeUInt32LE(Bun.hash.crc32(data), 10);
  common.writeUInt32LE(data.length, 14);
  common.writeUInt32LE(data.length, 18);
  common.writeUInt16LE(path.length, 22);
  const local = Buffer.concat([Buffer.from("PK\x03\x04"), common, path, data]);
  const version = Buffer.from([20, 0]);
  const central = Buffer.concat([Buffer.from("PK\x01\x02"), version, common, Buffer.alloc(14), path]);
  const end = Buffer.alloc(22);
  end.write("PK\x05\x06");
  end.writeUInt16LE(1, 8);
  end.writeUInt16LE(1, 10);
  end.writeUInt32LE(central.length, 12);
  end.writeUInt32LE(local.length, 16);
  return Buffer.concat([local, central, end]);
}

/** Package index on loopback, whose wheels contain a program that prints a version, as nvcc does. */
function packageIndex(isDamaged: boolean, program = "nvcc", version = "13.0.88") {
  const machine = process.arch === "x64" ? "x86_64" : "aarch64";
  const bytes = zip(`nvidia/cu13/bin/${program}`, "#!/bin/sh\necho 'release 13.0, V13.0.88'\n");
  const sha256 = new Bun.CryptoHasher("sha256").update(isDamaged ? "other" : bytes).digest("hex");
  return Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch(request) {
      const { pathname } = new URL(request.url);
      if (pathname.startsWith("/files/")) return new Response(bytes);
      const name = pathname.split("/")[2]!.replaceAll("-", "_");
      const file = `${name}-${version}-py3-none-manylinux_2_17_${machine}.whl`;
      return Response.json({ files: [{ filename: file, url: `../../files/${file}`, hashes: { sha256 } }] });
    },
  });
}

test("nvcc is fetched from the index once, and can be run", async () => {
  const to = join(scratch, "build", "cuda");
  const index = packageIndex(false);
  const url = `${index.url}simple`;
  const nvcc = await fetchNvcc(to, url);
  await index.stop(true);
  expect(nvcc).toBe(join(to, "nvidia/cu13/bin/nvcc"));
  expect(await nvccVersion(nvcc)).toBe(130);
  expect(await fetchNvcc(to, url)).toBe(nvcc); // without an index
  expect(readdirSync(join(scratch, "build"))).toEqual(["cuda"]);
});

test.skipIf(Bun.which("cuobjdump") !== null)("the disassembler is fetched where there is none", async () => {
  const to = join(scratch, "build", "disassembler");
  const index = packageIndex(false, "cuobjdump", "13.2.78");
  expect(await findDisassembler(to, `${index.url}simple`)).toBe(join(to, "nvidia/cu13/bin"));
  await index.stop(true);
});

test("a damaged wheel is refused, and nothing is left of it", async () => {
  const to = join(scratch, "damaged", "cuda");
  const index = packageIndex(true);
  await expect(fetchNvcc(to, `${index.url}simple`)).rejects.toThrow(
    /^nvidia_cuda_nvcc-13\.0\.88-\S+ is damaged: its SHA-256 is \w{64}, not \w{64}\.$/,
  );
  await index.stop(true);
  expect(readdirSync(join(scratch, "damaged"))).toEqual([]);
});

test("an index that does not answer is named, with the variable that changes it", async () => {
  await expect(fetchNvcc(join(scratch, "none"), "http://127.0.0.1:1/simple")).rejects.toThrow(
    /^http:\/\/127\.0\.0\.1:1\/simple\/nvidia-cuda-nvcc\/ cannot be fetched: .*PIP_INDEX_URL names another package index\.$/,
  );
});
