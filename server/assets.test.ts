import { afterAll, expect, test } from "bun:test";
import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { extractTo, newest } from "./assets.ts";
import type { EmbeddedFile } from "./embedded.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-assets-"));
afterAll(() => rmSync(scratch, { recursive: true }));

function embedded(
  name: string,
  content: string,
  sha256 = new Bun.CryptoHasher("sha256").update(content).digest("hex"),
) {
  const path = join(scratch, `source-${name.replaceAll("/", "-")}`);
  writeFileSync(path, content);
  return { name, path, sha256 } satisfies EmbeddedFile;
}

test("files are extracted privately, below a folder of their version", async () => {
  const root = join(scratch, "private");
  const files = [embedded("lib.so", "code"), embedded("models/demo/config.json", "{}")];
  const folder = await extractTo(root, "version", files);
  expect(folder).toBe(join(root, "version"));
  expect(readFileSync(join(folder, "lib.so"), "utf8")).toBe("code");
  expect(readFileSync(join(folder, "models/demo/config.json"), "utf8")).toBe("{}");
  expect(statSync(folder).mode & 0o777).toBe(0o700);
  expect(statSync(join(folder, "lib.so")).mode & 0o777).toBe(0o600);
});

test("an intact file is left alone, a damaged one is replaced", async () => {
  const root = join(scratch, "damaged");
  const files = [embedded("a.so", "first"), embedded("b.so", "second")];
  const folder = await extractTo(root, "version", files);
  const before = statSync(join(folder, "a.so")).ino;
  writeFileSync(join(folder, "b.so"), "dama9e");
  await extractTo(root, "version", files);
  expect(statSync(join(folder, "a.so")).ino).toBe(before);
  expect(readFileSync(join(folder, "b.so"), "utf8")).toBe("second");
});

test("many starts at once leave whole files and nothing else", async () => {
  const root = join(scratch, "race");
  const files = [embedded("race.so", "x".repeat(100_000))];
  const folders = await Promise.all(Array.from({ length: 8 }, () => extractTo(root, "version", files)));
  expect(readdirSync(folders[0]!)).toEqual(["race.so"]);
  expect(statSync(join(folders[0]!, "race.so")).size).toBe(100_000);
});

test("a folder that others can write to is refused", async () => {
  const root = join(scratch, "open");
  await extractTo(root, "version", []);
  chmodSync(root, 0o777);
  await expect(extractTo(root, "version", [embedded("c.so", "code")])).rejects.toThrow(
    "can be written by other users",
  );
});

test("an executable whose content is not what was built is refused", async () => {
  const file = embedded("d.so", "code", "0".repeat(64));
  await expect(extractTo(join(scratch, "wrong"), "version", [file])).rejects.toThrow(
    "inside the executable is damaged",
  );
});

test("of a library for all machines and one for this machine the latest build is loaded", () => {
  const [all, here] = [join(scratch, "all.so"), join(scratch, "here.so")];
  expect(newest([all, here])).toBe(all);
  writeFileSync(here, "");
  expect(newest([all, here])).toBe(here);
  writeFileSync(all, "");
  utimesSync(here, 1000, 1000);
  expect(newest([all, here])).toBe(all);
  utimesSync(all, 999, 999);
  expect(newest([all, here])).toBe(here);
});
