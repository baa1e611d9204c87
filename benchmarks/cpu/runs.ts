/** Programs of a benchmark: run to their end, or kept as servers. All end with the benchmark. */

const running = new Set<Bun.Subprocess>();
process.on("exit", () => {
  for (const child of running) child.kill();
});
process.on("SIGINT", () => process.exit(130));
process.on("SIGTERM", () => process.exit(143));

function whileRunning<Child extends Bun.Subprocess>(child: Child): Child {
  running.add(child);
  void child.exited.then(() => running.delete(child));
  return child;
}

/** Returns the output of a program; throws if it fails. */
export async function runProgram(command: readonly string[]): Promise<string> {
  const child = whileRunning(Bun.spawn([...command], { stdout: "pipe", stderr: "pipe" }));
  const [out, error] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  const code = await child.exited;
  if (code !== 0) throw new Error(`${command.join(" ")} ended with ${code}: ${error.slice(-2000)}`);
  return out;
}

export interface RunningProgram {
  readonly url: string;
  readonly pid: number;
  /** Milliseconds from its start to its first good answer at `healthPath`. */
  readonly readyMs: number;
  stop(): Promise<void>;
}

/** Starts a server; resolves once `healthPath` answers with 200. `command` gets a free port. */
export async function startProgram(
  command: (port: number) => readonly string[],
  healthPath: string,
  cwd?: string,
): Promise<RunningProgram> {
  const port = freePort();
  const url = `http://127.0.0.1:${port}`;
  const startMs = performance.now();
  const words = command(port);
  const child = whileRunning(
    Bun.spawn([...words], {
      stdout: "ignore",
      stderr: "ignore",
      ...(cwd === undefined ? {} : { cwd }),
    }),
  );
  let hasEnded = false;
  void child.exited.then(() => {
    hasEnded = true;
  });
  for (;;) {
    if (hasEnded) throw new Error(`${words.join(" ")} ended before it was ready`);
    try {
      const response = await fetch(url + healthPath);
      await response.arrayBuffer();
      if (response.ok) break;
    } catch {
      // The server does not listen yet.
    }
    await Bun.sleep(10);
  }
  return {
    url,
    pid: child.pid,
    readyMs: performance.now() - startMs,
    stop: async () => {
      child.kill("SIGTERM");
      await child.exited;
    },
  };
}

function freePort(): number {
  const probe = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response() });
  const { port } = probe;
  probe.stop(true);
  return port!;
}
