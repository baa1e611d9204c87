/**
 * Coding agents, as their packages come, each in an empty home of its own and told of one server. Their settings are those of
 * docs/agents.md.
 */

const codexConfig = (url) => `model = "demo"
model_provider = "bunting"

[model_providers.bunting]
name = "Bunting"
base_url = "${url}/v1"
wire_api = "responses"
`;

const opencodeConfig = (url) => ({
  model: "bunting/demo",
  provider: {
    bunting: {
      npm: "@ai-sdk/openai-compatible",
      options: { baseURL: `${url}/v1` },
      models: { demo: { limit: { context: 65_536, output: 32_000 } } },
    },
  },
});

/** A context in which opencode compacts the session before it goes on. */
const smallContext = JSON.stringify({
  provider: { bunting: { models: { demo: { limit: { context: 40_000, output: 20_000 } } } } },
});

const continueConfig = (url) => `name: Bunting
version: 1.0.0
schema: v1
models:
  - name: demo
    provider: openai
    model: demo
    apiBase: ${url}/v1
    apiKey: none
    roles: [chat]
    capabilities: [tool_use]
`;

/** Acts of agents with tools: see acts.ts. */
const acts = ["write", "parallel", "look", "cut", "on", "long", "compact", "end"];

const notes = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => `note${from + i}`);

const codexFlags = ["--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check"];

/**
 * By name: the package, the home's files and the environment that are its settings, the groups of acts that a process plays, and how a
 * process is started: its command, what it reads from its standard input, and what it has in its environment besides.
 * `cutExit` is the exit code after an answer that was cut.
 */
export const codingAgents = {
  codex: {
    npm: "@openai/codex@0.171.0",
    files: (url) => ({ ".codex/config.toml": codexConfig(url) }),
    acts,
    cutExit: 1,
    start: ({ act, message, resumes }) => ({
      command: [
        ...["codex", "exec", ...(resumes ? ["resume", "--last"] : []), ...codexFlags],
        ...(act === "compact" ? ["-c", "model_auto_compact_token_limit=1"] : []),
        message,
      ],
    }),
  },
  claude: {
    npm: "@anthropic-ai/claude-code@2.1.332",
    env: (url) => ({ ANTHROPIC_BASE_URL: url, ANTHROPIC_AUTH_TOKEN: "none", ANTHROPIC_MODEL: "demo" }),
    acts,
    start: ({ act, message, resumes }) => ({
      command: [
        ...["claude", ...(resumes ? ["--continue"] : [])],
        ...["-p", act === "compact" ? "/compact" : message, "--allowedTools", "Bash,Read,Write"],
      ],
    }),
  },
  opencode: {
    npm: "opencode-ai@1.18.33",
    files: (url) => ({ ".config/opencode/opencode.json": JSON.stringify(opencodeConfig(url)) }),
    acts,
    start: ({ act, message, resumes }) => ({
      command: ["opencode", "run", ...(resumes ? ["--continue"] : []), message],
      env: act === "compact" ? { OPENCODE_CONFIG_CONTENT: smallContext } : {},
    }),
  },
  qwen: {
    npm: "@qwen-code/qwen-code@0.24.4",
    env: (url) => ({ OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: "none", OPENAI_MODEL: "demo" }),
    acts,
    start: ({ act, message, resumes }) => ({
      command: [
        ...["qwen", ...(resumes ? ["--continue"] : [])],
        ...["--yolo", "-p", act === "compact" ? "/compress" : message],
      ],
    }),
  },
  cn: {
    npm: "@continuedev/cli@1.5.47",
    files: (url) => ({ "config.yaml": continueConfig(url) }),
    acts,
    start: ({ act, message, resumes, home }) => ({
      command: [
        ...["cn", "--config", `${home}/config.yaml`, "--auto", ...(resumes ? ["--resume"] : [])],
        ...["-p", act === "compact" ? "/compact" : message],
      ],
    }),
  },
  aider: {
    python: "aider-chat==0.86.2",
    acts: [notes(1, 10), "cut", notes(11, 20)],
    start: ({ act, message, resumes, url }) => ({
      command: [
        ...["aider", "--model", "openai/demo", "--openai-api-base", `${url}/v1`, "--openai-api-key", "none"],
        ...["--no-git", "--yes-always", "--no-fancy-input"],
        ...(resumes ? ["--restore-chat-history", "--max-chat-history-tokens", "500"] : []),
        ...(act === "cut" ? ["--message", message] : []),
      ],
      input: message,
    }),
  },
};
