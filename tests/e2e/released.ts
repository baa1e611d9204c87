/** Installed packages: commands that run them, and a question to what they serve. */

import { expect } from "bun:test";
import { Program } from "./program.ts";

/** Runs a command to its end; returns its output. */
export async function run(
  command: readonly string[],
  options: { readonly cwd?: string } = {},
): Promise<string> {
  const program = new Program([...command], options);
  if ((await program.exitCode()) !== 0) throw new Error(`${program.output}${program.errors}`);
  return program.output;
}

/** Starts a server by a command, asks it a question, and stops it. Resolves to its output. */
export async function expectAnswers(
  command: readonly string[],
  environment: Record<string, string>,
): Promise<string> {
  const server = new Program([...command, "serve", "--port", "0", "--max-model-len", "512"], { environment });
  await expectAnswersAt(await server.url());
  server.signal("SIGTERM");
  expect(await server.exitCode()).toBe(0);
  return server.output;
}

export async function expectAnswersAt(url: string): Promise<void> {
  const body = { model: "demo", messages: [{ role: "user", content: "Who are you?" }], max_tokens: 8 };
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const answer = (await response.json()) as { usage: { completion_tokens: number } };
  expect<unknown>([response.status, answer.usage.completion_tokens > 0]).toEqual([200, true]);
}

/** True if this process may mount, as `inImage` does. */
export const mayMount =
  process.getuid?.() === 0 &&
  Bun.spawnSync(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).exitCode === 0;

/** Command that runs in the image as a user, with its own /proc and this machine's /dev. */
export function inImage(image: string, user: string, command: readonly string[]): string[] {
  const script = `mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && user=$1 && shift && exec chroot --userspec="$user" "$0" "$@"`;
  return ["unshare", "--mount", "sh", "-c", script, image, user, ...command];
}
