/** Settings of agents, read from docs/agents.md. */
import { readFileSync } from "node:fs";

const page = new URL("../../../docs/agents.md", import.meta.url);
const addressOfPage = "http://127.0.0.1:8000";

/**
 * Returns the home files by path, the environment, and the command from a section of the page, for the server
 * at `url`.
 */
export function settingsOf(title, url) {
  const text = readFileSync(page, "utf8").replaceAll(addressOfPage, url);
  const section = text.split(/^## /m).find((part) => part.startsWith(`${title}\n`));
  if (section === undefined) throw new Error(`docs/agents.md has no section ${title}`);
  const files = section.matchAll(/^`~\/(.+)`:\n\n```\w+\n([\s\S]*?)```$/gm);
  const shell = /^```sh\n([\s\S]*?)```$/m.exec(section)?.[1] ?? "";
  return {
    files: Object.fromEntries(Array.from(files, ([, path, content]) => [path, content])),
    env: Object.fromEntries(
      Array.from(shell.matchAll(/^export (\w+)=(.*)$/gm), ([, name, value]) => [name, value]),
    ),
    command: shell.trim().split("\n").at(-1).split(" "),
  };
}
