/** Coding agents and chat clients as packaged, with the settings of docs/agents.md. */

/** Context size at which opencode compacts the session before it continues. */
const smallContext = JSON.stringify({
  provider: { bunting: { models: { demo: { limit: { context: 32_768, output: 12_000 } } } } },
});

/** Acts of agents with tools: see acts.ts. */
const acts = ["write", "parallel", "look", "cut", "on", "long", "compact", "end"];

/** Acts of agents that compact a session on their own alone. */
const withoutCompact = acts.toSpliced(acts.indexOf("compact"), 1, "parallel");

const notes = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => `note${from + i}`);

/**
 * Agents by name: the package and those that it needs beside it, the title of its section in docs/agents.md, the server's context in tokens,
 * and the groups of acts per process. A process gets arguments, standard input and an environment besides the
 * settings. `cutExit` is the exit code after a truncated answer.
 */
export const codingAgents = {
  codex: {
    npm: "@openai/codex@0.171.0",
    title: "Codex CLI",
    contextMax: 32_768,
    acts,
    cutExit: 1,
    start: ({ act, message, resumes }) => ({
      args: [
        ...["exec", ...(resumes ? ["resume", "--last"] : [])],
        ...["--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check"],
        ...(act === "compact" ? ["-c", "model_auto_compact_token_limit=1"] : []),
        message,
      ],
    }),
  },
  claude: {
    npm: "@anthropic-ai/claude-code@2.1.332",
    title: "Claude Code",
    contextMax: 65_536,
    acts: acts.toSpliced(acts.indexOf("compact"), 0, "delegate"),
    start: ({ act, message, resumes }) => ({
      args: [
        ...(resumes ? ["--continue"] : []),
        ...["-p", act === "compact" ? "/compact" : message, "--allowedTools", "Bash,Read,Write"],
      ],
    }),
  },
  opencode: {
    npm: "opencode-ai@1.18.33",
    title: "opencode",
    contextMax: 32_768,
    acts,
    start: ({ act, message, resumes }) => ({
      args: ["run", ...(resumes ? ["--continue"] : []), message],
      env: act === "compact" ? { OPENCODE_CONFIG_CONTENT: smallContext } : {},
    }),
  },
  qwen: {
    npm: "@qwen-code/qwen-code@0.24.4",
    title: "Qwen Code",
    contextMax: 65_536,
    acts,
    start: ({ act, message, resumes }) => ({
      args: [
        ...(resumes ? ["--continue"] : []),
        ...["--yolo", "-p", act === "compact" ? "/compress" : message],
      ],
    }),
  },
  cn: {
    npm: "@continuedev/cli@1.5.47",
    title: "Continue",
    contextMax: 32_768,
    acts,
    start: ({ act, message, resumes }) => ({
      args: [
        ...["--auto", ...(resumes ? ["--resume"] : [])],
        ...["-p", act === "compact" ? "/compact" : message],
      ],
    }),
  },
  copilot: {
    npm: "@github/copilot@1.0.102",
    title: "Copilot CLI",
    contextMax: 65_536,
    acts: withoutCompact,
    start: ({ message, resumes }) => ({
      args: [...(resumes ? ["--continue"] : []), "--allow-all-tools", "--allow-all-paths", "-p", message],
    }),
  },
  pi: {
    npm: "@earendil-works/pi-coding-agent@1.6.0",
    beside: ["node@22.23.3"],
    title: "Pi",
    contextMax: 32_768,
    acts: withoutCompact,
    start: ({ message, resumes }) => ({
      args: [...(resumes ? ["--continue"] : []), "--print", message],
    }),
  },
  aider: {
    python: "aider-chat==0.86.2",
    title: "Aider",
    contextMax: 32_768,
    acts: [notes(1, 10), "cut", notes(11, 20)],
    start: ({ act, message, resumes }) => ({
      args: [
        ...["--no-git", "--yes-always", "--no-fancy-input"],
        ...(resumes ? ["--restore-chat-history", "--max-chat-history-tokens", "500"] : []),
        ...(act === "cut" ? ["--message", message] : []),
      ],
      input: message,
    }),
  },
  "open-webui": {
    python: "open-webui==0.12.4",
    title: "Open WebUI",
    contextMax: 32_768,
    acts: ["write", "parallel", "cut", "on", "long", "write", "end"],
  },
};
