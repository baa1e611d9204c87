import { Database } from "bun:sqlite";
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { KeptResponses } from "./api/responses/kept.ts";
import { openStore } from "./jobs/service.ts";
import { ownDatabase } from "./own-files.ts";

let folder: string;
let outside: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "bunting-own-"));
  outside = mkdtempSync(join(tmpdir(), "bunting-outside-"));
  writeFileSync(join(outside, "precious"), "precious");
});
afterEach(() => {
  rmSync(folder, { recursive: true });
  rmSync(outside, { recursive: true });
});

/** Opens and closes everything that a server stores in a folder. */
function useData(): void {
  openStore(folder).close();
  new KeptResponses(folder).close();
}

/** Modes of everything below a folder, by path. */
function modesIn(path: string): Record<string, number> {
  const modes: Record<string, number> = {};
  for (const name of readdirSync(path, { recursive: true }) as string[]) {
    modes[name] = lstatSync(join(path, name)).mode & 0o777;
  }
  return modes;
}

describe("what a server keeps", () => {
  test("is closed to others, whatever the mask, and when it was open before", () => {
    const mask = process.umask(0);
    try {
      useData();
      const closed = {
        jobs: 0o700,
        "jobs/commits": 0o600,
        "jobs/files": 0o700,
        "jobs/jobs.sqlite": 0o600,
        responses: 0o700,
        "responses/index.sqlite": 0o600,
      };
      expect(modesIn(folder)).toEqual(closed);
      for (const [name, mode] of Object.entries(closed)) chmodSync(join(folder, name), mode | 0o055);
      useData();
      expect(modesIn(folder)).toEqual(closed);
    } finally {
      process.umask(mask);
    }
  });

  test("is closed with all that SQLite writes beside it", () => {
    const mask = process.umask(0);
    try {
      const path = join(folder, "some.sqlite");
      ownDatabase(path);
      const database = new Database(path);
      database.run("PRAGMA journal_mode = WAL");
      database.run("CREATE TABLE some (a)");
      expect(modesIn(folder)).toEqual({
        "some.sqlite": 0o600,
        "some.sqlite-shm": 0o600,
        "some.sqlite-wal": 0o600,
      });
      database.close();
    } finally {
      process.umask(mask);
    }
  });

  test.each(["jobs", "jobs/files", "jobs/jobs.sqlite", "jobs/jobs.sqlite-wal", "jobs/commits"])(
    "%s is not a link, and what one points to stays as it is",
    (name) => {
      openStore(folder).close();
      rmSync(join(folder, name), { recursive: true, force: true });
      const target = name.includes(".") || name.endsWith("commits") ? join(outside, "precious") : outside;
      symlinkSync(target, join(folder, name));
      expect(() => openStore(folder)).toThrow(`${join(folder, name)} is a link, which is not followed here`);
      expect(readdirSync(outside)).toEqual(["precious"]);
      expect(existsSync(join(folder, name))).toBe(true);
    },
  );

  test.each(["responses", "responses/index.sqlite"])("%s is not a link either", (name) => {
    mkdirSync(join(folder, "responses"));
    rmSync(join(folder, name), { recursive: true, force: true });
    symlinkSync(outside, join(folder, name));
    expect(() => new KeptResponses(folder)).toThrow("is a link, which is not followed here");
    expect(readdirSync(outside)).toEqual(["precious"]);
  });

  test("that is a folder where files are kept is left alone", () => {
    openStore(folder).close();
    mkdirSync(join(folder, "jobs/files/mine"));
    writeFileSync(join(folder, "jobs/files/mine/text"), "mine");
    symlinkSync(outside, join(folder, "jobs/files/link"));
    openStore(folder).close();
    expect(existsSync(join(folder, "jobs/files/mine/text"))).toBe(true);
    expect(readdirSync(outside)).toEqual(["precious"]);
  });
});
