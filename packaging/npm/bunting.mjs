#!/usr/bin/env node
// Starts the executable of this platform's package, with the same arguments, terminal and signals.

import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { constants } from "node:os";

const isMusl = process.platform === "linux" && !process.report.getReport().header.glibcVersionRuntime;
const platform = `${process.platform}-${process.arch}${isMusl ? "-musl" : ""}`;

const { resolve } = createRequire(import.meta.url);

let executable;
try {
  executable = resolve(`@bunting/${platform}/bunting`);
} catch {
  console.error(
    `bunting: the package @bunting/${platform} is not installed. Either npm left out optional packages ` +
      "(--omit=optional, or a lock file of another platform), or Bunting has none for this platform: " +
      "it runs on Linux on x64 or arm64.",
  );
  process.exit(1);
}

const env = { ...process.env };
try {
  env.BUNTING_CUDA_LIBRARY ??= resolve(`@bunting/${platform}-cuda/libbunting_cuda.so`);
} catch {
  // The engine for GPUs is a package of its own, which is not installed.
}

const child = spawn(executable, process.argv.slice(2), { stdio: "inherit", env });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`bunting: ${executable} does not start: ${error.message}`);
  process.exit(1);
});
child.on("close", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
