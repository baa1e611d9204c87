// `npm start -- [arguments]`: sets up missing parts, then runs `bunting serve [arguments]`.

import { spawn } from "node:child_process";
import { constants } from "node:os";
import { join } from "node:path";
import { SIGNALS } from "./process.mjs";
import { bun, root, setUpHere } from "./setup.mjs";

export async function main(args) {
  await setUpHere();
  return await runForeground(bun, [join(root, "server", "main.ts"), "serve", ...args]);
}

/**
 * Runs a command in this terminal, forwards signals, and returns its exit code. The command runs in the
 * caller's folder, so that relative paths in its arguments resolve there.
 */
export function runForeground(command, args, cwd = process.env.INIT_CWD ?? process.cwd()) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { stdio: "inherit", cwd });
    for (const signal of SIGNALS) process.on(signal, () => child.kill(signal));
    child.on("error", (error) => {
      console.error(`Cannot start ${command}: ${error.message}`);
      resolve(1);
    });
    child.on("close", (code, signal) => resolve(code ?? 128 + (constants.signals[signal] ?? 0)));
  });
}
