/**
 * Runs suites of tests that others wrote, or that need packages which the tree does without: `node tests/suites/run.mjs [name …]`.
 * Each installs what it needs, in the versions that it names, to a folder of its own (build/suites/<name>); one that cannot be
 * installed here is skipped with one line. Ends with 1 when a suite fails. What fails, and why, is in docs/reference/compat.md.
 */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");

/** True, or what the command said last before it failed. */
function succeeds(command, args, { cwd = root, stdio = "pipe", env = {} } = {}) {
  const options = { cwd, stdio, encoding: "utf8", env: { ...process.env, ...env } };
  const { status, error, stderr } = spawnSync(command, args, options);
  if (error !== undefined) return error.message;
  return status === 0 || (stderr ?? "").trim().split("\n").at(-1) || `exit code ${status}`;
}

/** The first failure of steps, or true. */
function all(...steps) {
  for (const step of steps) {
    const outcome = step();
    if (outcome !== true) return outcome;
  }
  return true;
}

const folderOf = (name) => join(root, "build/suites", name);
const pythonOf = (name) => join(folderOf(name), "venv/bin/python");

function installPython(name) {
  mkdirSync(folderOf(name), { recursive: true });
  return all(
    () => existsSync(pythonOf(name)) || succeeds("python3", ["-m", "venv", join(folderOf(name), "venv")]),
    () =>
      succeeds(pythonOf(name), ["-m", "pip", "install", "-q", "-r", join(here, name, "requirements.txt")]),
  );
}

/** Runs `work` beside a server on the simulated device, whose tokens are random: of answers the form counts, not the words. */
async function withServer(work) {
  const port = 20_000 + Math.floor(Math.random() * 20_000);
  const args = [
    "bun",
    "server/main.ts",
    "serve",
    "--port",
    String(port),
    "--device",
    "simulated",
    "--any-model-name",
  ];
  const server = spawn("npx", args, { cwd: root, stdio: ["ignore", "pipe", "inherit"], detached: true });
  try {
    for (;;) {
      const isReady = await fetch(`http://127.0.0.1:${port}/health/ready`).then(
        ({ ok }) => ok,
        () => false,
      );
      if (isReady) break;
      if (server.exitCode !== null) return `the server ended with ${server.exitCode}`;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    return work(port);
  } finally {
    process.kill(-server.pid, "SIGTERM");
  }
}

/** llama.cpp's sources come with a Python package that wraps them. */
const LLAMA_CPP = "llama_cpp_python==0.3.36";
const llamaTests = () => {
  const folder = folderOf("llama-server");
  const [source] = existsSync(folder)
    ? readdirSync(folder).filter((name) => /^llama_cpp_python-[\d.]+$/.test(name))
    : [];
  return source === undefined ? null : join(folder, source, "vendor/llama.cpp/tools/server/tests");
};
const llamaFiles = "chat_completion compat_oai_responses compat_anthropic tokenize";

/** By name: what installs it, and what runs it. */
const suites = {
  /** Clients of packages that are too large, or too rarely needed, for the tree's own tests. */
  clients: {
    install: () => succeeds("npm", ["ci"], { cwd: join(here, "clients") }),
    run: () => succeeds("npx", ["bun", "test", "tests/suites/clients"], { stdio: "inherit" }),
  },
  /** LangChain's standard tests of chat models, by its clients for OpenAI's two APIs and Anthropic's. */
  langchain: {
    install: () => installPython("langchain"),
    run: () =>
      withServer((port) =>
        succeeds(
          pythonOf("langchain"),
          ["-m", "pytest", "-q", "-p", "no:cacheprovider", join(here, "langchain")],
          {
            stdio: "inherit",
            env: { BUNTING_URL: `http://127.0.0.1:${port}`, PYTHONDONTWRITEBYTECODE: "1" },
          },
        ),
      ),
  },
  /** llama.cpp's tests of its own server, which can be told of another one. */
  "llama-server": {
    install: () =>
      all(
        () => installPython("llama-server"),
        () => {
          const folder = folderOf("llama-server");
          if (llamaTests() !== null) return true;
          const only = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-d", folder];
          const had = succeeds(pythonOf("llama-server"), ["-m", "pip", "download", "-q", ...only, LLAMA_CPP]);
          if (had !== true) return had;
          const [archive] = readdirSync(folder).filter((name) => name.endsWith(".tar.gz"));
          return succeeds("tar", ["-xzf", join(folder, archive), "-C", folder]);
        },
      ),
    run: () =>
      withServer((port) => {
        const files = llamaFiles.split(" ").map((name) => `unit/test_${name}.py`);
        const options = [
          "-q",
          "-m",
          "not slow",
          "--timeout",
          "8",
          "-p",
          "external",
          "-p",
          "no:cacheprovider",
        ];
        return succeeds(pythonOf("llama-server"), ["-m", "pytest", ...options, ...files], {
          cwd: llamaTests(),
          stdio: "inherit",
          env: {
            PYTHONPATH: `${join(here, "llama-server")}:${llamaTests()}`,
            PORT: String(port),
            DEBUG_EXTERNAL: "1",
          },
        });
      }),
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
  const passed = await run();
  console.log(`${passed === true ? "ok  " : "FAIL"} ${name}`);
  if (passed !== true) failed++;
}
process.exitCode = failed > 0 ? 1 : 0;
