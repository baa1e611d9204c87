// Commands that the set-up runs.

import { spawn, spawnSync } from "node:child_process";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));

export const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"];

/** Failure that is one sentence for people; printed without a stack. */
export class SetupError extends Error {
  name = "SetupError";
}

/** True if a command starts and succeeds. */
export function runs(command, args) {
  return spawnSync(command, args, { stdio: "ignore" }).status === 0;
}

/**
 * Runs a command in the project root and returns its output for error messages. A signal ends the command and
 * then this process.
 */
export function runQuietly(command, args, { cwd = root, onLine = () => {} } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, stdio: ["ignore", "pipe", "pipe"] });
    const stop = (signal) => {
      child.kill(signal);
      reject(new SetupError(`Stopped by ${signal}.`));
    };
    for (const signal of SIGNALS) process.on(signal, stop);
    let output = "";
    const take = (bytes) => {
      output += bytes;
      for (const line of String(bytes).split("\n")) onLine(line);
    };
    const end = (result) => {
      for (const signal of SIGNALS) process.off(signal, stop);
      resolve(result);
    };
    child.stdout.on("data", take);
    child.stderr.on("data", take);
    child.on("error", (error) => end({ code: 127, output: String(error.message) }));
    child.on("close", (code) => end({ code: code ?? 1, output }));
  });
}

export function lastLines(text, count) {
  return text.trimEnd().split("\n").slice(-count).join("\n");
}
