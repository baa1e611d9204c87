/**
 * Archives of the last `npm run release` for another processor or C library: unpacked, started and asked a
 * question. A platform whose archive or root is missing is skipped with one line; docs/hacking.md makes the roots.
 */

import { afterAll, expect, test } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import packageJson from "../../package.json" with { type: "json" };
import { Program } from "./program.ts";
import { expectAnswersAt, inImage, mayMount, run } from "./released.ts";

const tree = resolve(import.meta.dir, "../..");
const scratch = mkdtempSync(join(tmpdir(), "bunting-platforms-"));
afterAll(() => rmSync(scratch, { recursive: true }));

interface Platform {
  readonly name: string;
  /** Processor in qemu's words. */
  readonly processor: "x86_64" | "aarch64";
  /** Root of a system with its C library and C++ library. */
  readonly root: string;
  readonly loader: string;
}

const muslRoot = (name: string): string => join(tree, "build", "roots", name);
const platforms: readonly Platform[] = [
  {
    name: "linux-arm64",
    processor: "aarch64",
    root: "/usr/aarch64-linux-gnu",
    loader: "lib/ld-linux-aarch64.so.1",
  },
  {
    name: "linux-x64-musl",
    processor: "x86_64",
    root: muslRoot("linux-x64-musl"),
    loader: "lib/ld-musl-x86_64.so.1",
  },
  {
    name: "linux-arm64-musl",
    processor: "aarch64",
    root: muslRoot("linux-arm64-musl"),
    loader: "lib/ld-musl-aarch64.so.1",
  },
];

const own = process.arch === "x64" ? "x86_64" : "aarch64";
const folderOf = ({ name }: Platform): string => `bunting-${packageJson.version}-${name}`;
const archiveOf = (platform: Platform): string =>
  join(tree, "dist", "release", `${folderOf(platform)}.tar.gz`);

/** The reason why a platform's archive cannot run here; null if it can. */
function obstacle(platform: Platform): string | null {
  const { name, processor, root, loader } = platform;
  if (!existsSync(archiveOf(platform))) return `\`npm run release -- ${name}\` has not run`;
  if (!existsSync(join(root, loader))) return `${root} has no ${loader}`;
  if (processor === own) return mayMount ? null : "it takes root's rights to change the root folder";
  return Bun.which(`qemu-${processor}-static`) === null ? `there is no qemu-${processor}-static` : null;
}

/** Command that runs an executable in the platform's root. */
function inRoot({ processor, root }: Platform, executable: string, args: readonly string[]): string[] {
  if (processor !== own) return [`qemu-${processor}-static`, "-L", root, executable, ...args];
  for (const path of ["proc", "dev", "tmp"]) mkdirSync(join(root, path), { recursive: true });
  const install = ["sh", "-c", 'mkdir -p "$0/bin" && cp "$1" "$0/bin/bunting"', root, executable];
  expect(Bun.spawnSync(install).exitCode).toBe(0);
  return inImage(root, "0:0", ["/bin/bunting", ...args]);
}

for (const platform of platforms) {
  const reason = obstacle(platform);
  if (reason !== null) console.log(`skipped: ${platform.name}, because ${reason}`);
  test.skipIf(reason !== null)(
    `the archive of ${platform.name} starts, and answers`,
    async () => {
      await run(["tar", "xzf", archiveOf(platform), "-C", scratch]);
      const folder = join(scratch, folderOf(platform));
      await run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], { cwd: folder });
      const executable = join(folder, "bunting");
      const environment = { ...(process.env as Record<string, string>), HOME: scratch };
      const command = inRoot(platform, executable, ["serve", "--port", "0", "--data", "off"]);
      const server = new Program(command, { environment });
      const url = await server.url();
      await expectAnswersAt(url);
      server.signal("SIGTERM");
      expect(await server.exitCode()).toBe(0);
    },
    300_000,
  );
}
