/**
 * Runs suites of tests that others wrote, or that need packages which the tree does without: `node tests/suites/run.mjs [name …]`.
 * Each installs what it needs, in the versions that it names, to a folder of its own; one that cannot be installed here is
 * skipped with one line. Ends with 1 when a suite fails.
 */
import { spawnSync } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));

/** True, or what the command said last before it failed. */
function succeeds(command, args, cwd, stdio = "pipe") {
  const { status, error, stderr } = spawnSync(command, args, { cwd, stdio, encoding: "utf8" });
  if (error !== undefined) return error.message;
  return status === 0 || (stderr ?? "").trim().split("\n").at(-1) || `exit code ${status}`;
}

const bun = ["npx", ["bun"]];

/** By name: what installs it, and what runs it. */
const suites = {
  /** Clients of packages that are too large, or too rarely needed, for the tree's own tests. */
  clients: {
    install: () => succeeds("npm", ["ci"], join(here, "clients")),
    run: () => succeeds(bun[0], [...bun[1], "test", "tests/suites/clients"], join(here, "../.."), "inherit"),
  },
};

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !Object.hasOwn(suites, name));
if (unknown.length > 0) {
  console.error(`there is no suite ${unknown.join(", ")}; there are: ${Object.keys(suites).join(", ")}`);
  process.exit(2);
}
let failed = 0;
for (const [name, { install, run }] of Object.entries(suites)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  const installed = install();
  if (installed !== true) {
    console.log(`skip ${name}: it cannot be installed here (${installed})`);
    continue;
  }
  const passed = run();
  console.log(`${passed === true ? "ok  " : "FAIL"} ${name}`);
  if (passed !== true) failed++;
}
process.exitCode = failed > 0 ? 1 : 0;
