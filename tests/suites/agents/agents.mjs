/**
 * Coding agents, as their packages come, each in an empty home of its own and told of one server: to write a file by a command. What
 * the model answers is in words.ts.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const task = "Create the file greeting.txt with the text hello.";
const secondsMax = 60;

/** Runs a command in empty folders; true when it ends well, has written the file, and tells the model's last words. */
function doesTheTask(command, args, { files = {}, env = {} }) {
  const home = mkdtempSync(join(tmpdir(), "bunting-agent-"));
  const work = join(home, "work");
  try {
    for (const folder of [work, join(home, ".codex")]) mkdirSync(folder);
    for (const [name, text] of Object.entries(files)) writeFileSync(join(home, name), text);
    const { status, error, stdout, stderr } = spawnSync(command, args, {
      cwd: work,
      encoding: "utf8",
      input: "",
      timeout: secondsMax * 1000,
      env: { PATH: process.env.PATH, HOME: home, ...env },
    });
    if (error !== undefined) return error.message;
    if (status !== 0) return `exit code ${status}: ${(stdout + stderr).trim().split("\n").at(-1)}`;
    const written = join(work, "greeting.txt");
    if (!existsSync(written)) return "it has not written the file";
    if (readFileSync(written, "utf8") !== "hello") return "the file holds something else";
    return stdout.includes("The tool has answered") || "its last words are not the model's";
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}

/** It offers the model a search of the web by its maker's servers unless it is told not to. */
const codexConfig = (url) => `
model = "demo"
model_provider = "bunting"
web_search = "disabled"

[model_providers.bunting]
name = "Bunting"
base_url = "${url}/v1"
wire_api = "responses"
`;

export const codingAgents = [
  {
    npm: "@openai/codex@0.169.0",
    run: (url, bin) =>
      doesTheTask(
        join(bin, "codex"),
        ["exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", task],
        { files: { ".codex/config.toml": codexConfig(url) } },
      ),
  },
  {
    npm: "@anthropic-ai/claude-code@2.1.197",
    run: (url, bin) =>
      doesTheTask(join(bin, "claude"), ["-p", task, "--allowedTools", "Bash"], {
        env: {
          ANTHROPIC_BASE_URL: url,
          ANTHROPIC_AUTH_TOKEN: "none",
          ANTHROPIC_MODEL: "demo",
          CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
          DISABLE_AUTOUPDATER: "1",
        },
      }),
  },
];
