import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Config } from "../config.ts";
import { type KeptJobs, modelFolder, openJobs } from "./data-folder.ts";

const own: Pick<Config, "data" | "device"> = { data: "auto", device: { kind: "auto" } };
const before = process.env.XDG_DATA_HOME;
let home = "";
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "bunting-home-"));
  process.env.XDG_DATA_HOME = home;
});
afterEach(() => {
  process.env.XDG_DATA_HOME = before;
  rmSync(home, { recursive: true });
});

function close({ store }: KeptJobs): void {
  store!.close();
}

test("each model has a folder of its own, whatever its name", () => {
  const names = ["demo", "Qwen/Qwen3-0.6B", "..", "../x", ".hidden", "a b"];
  const folders = names.map((name) => modelFolder(own, name)!);
  expect(folders.map((folder) => dirname(folder))).toEqual(names.map(() => join(home, "bunting")));
  expect(new Set(folders).size).toBe(names.length);
  expect(folders[1]).toBe(join(home, "bunting", "Qwen%2FQwen3-0.6B"));
});

test("simulated engines, and servers that are told so, keep nothing", () => {
  const device = { kind: "simulated", engines: 1 } as const;
  for (const config of [
    { ...own, device },
    { ...own, data: "off" as const },
  ])
    expect(openJobs(config, "demo")).toEqual({ store: null, note: null });
  expect(readdirSync(home)).toEqual([]);
});

test("the folder is closed to others, and so is what is in it", () => {
  const kept = openJobs(own, "demo");
  expect(kept.note).toBe(`jobs are kept in ${join(home, "bunting", "demo")}`);
  const modes = readdirSync(home, { recursive: true, withFileTypes: true }).map((entry) => {
    const { mode } = statSync(join(entry.parentPath, entry.name));
    return [entry.name, entry.isDirectory(), (mode & 0o777).toString(8)] as const;
  });
  expect(modes.map(([name]) => name)).toContain("jobs.sqlite-wal");
  for (const [name, isFolder, mode] of modes) expect([name, mode]).toEqual([name, isFolder ? "700" : "600"]);
  close(kept);
});

test("a second server with the same model serves without jobs, and one with another has its own", () => {
  const first = openJobs(own, "demo");
  const second = openJobs(own, "demo");
  expect(second.store).toBeNull();
  expect(second.note).toMatch(
    /^this server keeps no files and runs no batches: .* is used by another server; --data <folder>/,
  );
  const other = openJobs(own, "other");
  close(first);
  const third = openJobs(own, "demo");
  close(other);
  close(third);
});

test("without a place to keep them there are no jobs, but a folder that was named must be usable", () => {
  const file = join(home, "file");
  writeFileSync(file, "");
  process.env.XDG_DATA_HOME = file;
  expect(openJobs(own, "demo")).toEqual({
    store: null,
    note: expect.stringMatching(
      /^this server keeps no files and runs no batches: The folder .* cannot be used for jobs: /,
    ),
  });
  expect(() => openJobs({ ...own, data: { folder: join(file, "data") } }, "demo")).toThrow(
    "cannot be used for jobs",
  );
});
