/**
 * Runs third-party test suites and those with large packages: `node tests/suites/run.mjs [name …]`. Each
 * installs its requirements, in fixed versions, to its own folder (build/suites/<name>). A suite that cannot
 * be installed here is skipped with one line. Exits with 1 if a suite fails. Known failures and their reasons
 * are in docs/reference/compat.md.
 */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { codingAgents } from "./agents/agents.mjs";
import { playSession } from "./agents/session.mjs";
import { askThroughOpenWebui } from "./several/open-webui.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");
const minutesMax = 10;

/** Runs a command; returns true, or its last output line if it failed. */
function succeeds(command, args, { cwd = root, stdio = "pipe", env = {} } = {}) {
  const options = {
    cwd,
    stdio,
    encoding: "utf8",
    env: { ...process.env, ...env },
    timeout: minutesMax * 60_000,
  };
  const { status, signal, error, stderr } = spawnSync(command, args, options);
  if (error !== undefined) return error.message;
  return status === 0 || (stderr ?? "").trim().split("\n").at(-1) || `exit code ${status ?? signal}`;
}

/** Returns the first failure of the steps, or true. */
function all(...steps) {
  for (const step of steps) {
    const outcome = step();
    if (outcome !== true) return outcome;
  }
  return true;
}

const folderOf = (name) => join(root, "build/suites", name);
const pythonOf = (name) => join(folderOf(name), "venv/bin/python");

function makeVenv(name) {
  mkdirSync(folderOf(name), { recursive: true });
  return existsSync(pythonOf(name)) || succeeds("python3", ["-m", "venv", join(folderOf(name), "venv")]);
}

function installPython(name, requirements = `${name}/requirements.txt`) {
  return all(
    () => makeVenv(name),
    () => succeeds(pythonOf(name), ["-m", "pip", "install", "-q", "-r", join(here, requirements)]),
  );
}

/** Installs npm packages that are not dependencies of this tree. */
function installNpm(name, ...packages) {
  mkdirSync(folderOf(name), { recursive: true });
  return succeeds("npm", ["install", "--prefix", folderOf(name), "--no-audit", "--no-fund", ...packages]);
}

/** Runs the tests of the clients in Python that an expression of pytest selects. */
const testPythonClients = (name, selected) =>
  withServer((url) =>
    pytest(name, {
      cwd: join(here, "python-clients"),
      args: ["-k", selected],
      env: { BUNTING_URL: url, LITELLM_LOCAL_MODEL_COST_MAP: "True" },
    }),
  );

/** Runs the tests of a suite's folder and prints their counts. */
function pytest(name, { cwd = join(here, name), args = [], env = {} }) {
  return succeeds(pythonOf(name), ["-m", "pytest", "-q", "-p", "no:cacheprovider", ...args], {
    cwd,
    stdio: "inherit",
    env: { ...env, PYTHONDONTWRITEBYTECODE: "1" },
  });
}

const bun = join(root, "node_modules/.bin/bun");
const scriptedServer = [bun, join(here, "scripted-server.ts")];

/** Runs `work` beside a server whose model answers by words.ts. */
const withServer = (work, options = {}) => beside([...scriptedServer, JSON.stringify(options)], work);

/** Runs `work` beside a server of several models. */
const withSeveral = (work) => beside([bun, join(here, "several-server.ts")], work);

/** Runs `work` with the address that a command prints, which serves until its standard input ends. */
async function beside([command, ...args], work) {
  const server = spawn(command, args, {
    cwd: root,
    stdio: ["pipe", "pipe", "inherit"],
  });
  const ended = new Promise((resolve) => server.once("exit", resolve));
  try {
    for await (const url of createInterface({ input: server.stdout })) return await work(url);
    return "the server has not started";
  } finally {
    server.stdin.end();
    await ended;
  }
}

/** Returns an agent's folder of executables. */
const binOf = (name, { npm }) =>
  join(folderOf(`agents/${name}`), npm === undefined ? "venv/bin" : "node_modules/.bin");

function installAgent(name, { npm, beside = [], python }) {
  const folder = `agents/${name}`;
  if (npm !== undefined) return installNpm(folder, npm, ...beside);
  return all(
    () => makeVenv(folder),
    () => succeeds(pythonOf(folder), ["-m", "pip", "install", "-q", python]),
  );
}

/** Plays an agent's session; true if all of it passed. Keeps requests and answers, to examine failures. */
async function runAgent(name, agent) {
  const log = mkdtempSync(join(tmpdir(), `bunting-${name}-`));
  const play = (url) => playSession(agent, url, binOf(name, agent), log);
  const template = join(here, "agents/strict.jinja");
  const { turns, failures } = await withServer(play, { contextMax: agent.contextMax, template });
  for (const failure of failures) console.log(`  ${failure}`);
  console.log(`  ${agent.npm ?? agent.python}: ${turns} turns`);
  if (failures.length > 0) console.log(`  what was asked and answered: ${log}`);
  else rmSync(log, { recursive: true });
  return failures.length === 0;
}

/** Asks several models through Open WebUI; true if all of it passed. Keeps its log, to examine failures. */
async function runOpenWebui() {
  const log = mkdtempSync(join(tmpdir(), "bunting-open-webui-"));
  const bin = binOf("open-webui", codingAgents["open-webui"]);
  const failures = await withSeveral((url) => askThroughOpenWebui(url, bin, join(log, "server.txt")));
  for (const failure of failures) console.log(`  ${failure}`);
  if (failures.length > 0) console.log(`  what Open WebUI said: ${log}`);
  else rmSync(log, { recursive: true });
  return failures.length === 0;
}

/** Python package that contains llama.cpp's sources. */
const LLAMA_CPP = "llama_cpp_python==0.3.36";
const llamaFolder = folderOf("llama-cpp");
const llamaSource = () => {
  const [source] = existsSync(llamaFolder)
    ? readdirSync(llamaFolder).filter((name) => /^llama_cpp_python-[\d.]+$/.test(name))
    : [];
  return source === undefined ? null : join(llamaFolder, source, "vendor/llama.cpp");
};
const llamaTests = () => join(llamaSource(), "tools/server/tests");

function fetchLlamaCpp() {
  if (llamaSource() !== null) return true;
  mkdirSync(llamaFolder, { recursive: true });
  // Downloads the sources only; builds and runs no part of the package.
  const source = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-d", llamaFolder];
  const had = succeeds("python3", ["-m", "pip", "download", "-q", ...source, LLAMA_CPP]);
  if (had !== true) return had;
  const [archive] = readdirSync(llamaFolder).filter((name) => name.endsWith(".tar.gz"));
  return succeeds("tar", ["-xzf", join(llamaFolder, archive), "-C", llamaFolder]);
}

const llamaFiles =
  "chat_completion completion tokenize security stream compat_anthropic compat_oai_responses tool_call embedding basic template";

/** Suites by name: installation and command. */
const suites = {
  /** Clients from packages that are too large, or too rarely needed, for the tree's own tests. */
  clients: {
    install: () => succeeds("npm", ["ci"], { cwd: join(here, "clients") }),
    run: () => succeeds("npx", ["bun", "test", "tests/suites/clients"], { stdio: "inherit" }),
  },
  /** Clients in Python. */
  "python-clients": {
    install: () => installPython("python-clients"),
    run: () => testPythonClients("python-clients", "not Instructor and not LlamaIndex"),
  },
  /** Clients in Python that need an older `openai`. */
  "python-clients:older": {
    install: () => installPython("python-clients-older", "python-clients/older.txt"),
    run: () => testPythonClients("python-clients-older", "Instructor or LlamaIndex"),
  },
  /** Clients that list several models and let them take turns. */
  several: {
    install: () => installPython("several"),
    run: () => withSeveral((url) => pytest("several", { env: { OLLAMA_HOST: url } })),
  },
  /** Open WebUI with several models. */
  "several:open-webui": {
    install: () => installAgent("open-webui", codingAgents["open-webui"]),
    run: runOpenWebui,
  },
  /** Requests of the Open Responses compliance tests, which are not published as a package. */
  "open-responses": {
    install: () => installPython("open-responses"),
    run: () => withServer((url) => pytest("open-responses", { env: { BUNTING_URL: url } })),
  },
  /** Standard chat model tests of LangChain, through its clients for OpenAI's two APIs and Anthropic's. */
  langchain: {
    install: () => installPython("langchain"),
    run: () => withServer((url) => pytest("langchain", { env: { BUNTING_URL: url } })),
  },
  /** Server tests of llama.cpp. */
  "llama-server": {
    install: () => all(() => installPython("llama-server"), fetchLlamaCpp),
    run: () =>
      pytest("llama-server", {
        cwd: llamaTests(),
        args: [
          ...["-m", "not slow", "--timeout", "20", "--tb", "line", "-p", "external"],
          ...llamaFiles.split(" ").map((name) => `unit/test_${name}.py`),
        ],
        env: {
          PYTHONPATH: `${join(here, "llama-server")}:${llamaTests()}`,
          BUNTING_SERVER: JSON.stringify(scriptedServer),
        },
      }),
  },
  /** Published vocabularies with the tokens of some texts, from llama.cpp's sources. */
  vocabularies: {
    install: fetchLlamaCpp,
    run: () =>
      succeeds("npx", ["bun", join(here, "vocabularies.ts"), join(llamaSource(), "models")], {
        stdio: "inherit",
      }),
  },
  /**
   * Sessions of coding agents and chat clients: `node tests/suites/run.mjs agents`, or `agents:codex` for
   * one.
   */
  ...Object.fromEntries(
    Object.entries(codingAgents).map(([name, agent]) => [
      `agents:${name}`,
      { install: () => installAgent(name, agent), run: () => runAgent(name, agent) },
    ]),
  ),
};

const wanted = process.argv.slice(2);
/** True if the command line selects the suite; a group's name selects the whole group. */
const isWanted = (name) =>
  wanted.length === 0 || wanted.includes(name) || wanted.includes(name.replace(/:.*/, ""));
const names = Object.keys(suites).flatMap((name) => [name, name.replace(/:.*/, "")]);
const unknown = wanted.filter((name) => !names.includes(name));
if (unknown.length > 0) {
  console.error(`there is no suite ${unknown.join(", ")}; there are: ${[...new Set(names)].join(", ")}`);
  process.exit(2);
}
let failed = 0;
for (const [name, { install, run }] of Object.entries(suites)) {
  if (!isWanted(name)) continue;
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
