/** Server of ours or a peer's, in a process of its own. */
export interface Served {
  readonly name: string;
  readonly url: string;
  readonly pid: number;
  stop(): Promise<void>;
}

function freePort(): number {
  const probe = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response() });
  const { port } = probe;
  probe.stop(true);
  return port!;
}

/** Starts a server that takes `--port`; resolves when it is healthy. */
export async function serve(name: string, command: readonly string[]): Promise<Served> {
  const port = freePort();
  const env = { ...process.env, BUNTING_DATA: "off" };
  const child = Bun.spawn([...command, "--port", String(port)], { env, stdout: "ignore", stderr: "ignore" });
  const url = `http://127.0.0.1:${port}`;
  for (;;) {
    const answer = await fetch(`${url}/v1/models`).catch(() => null);
    if (answer?.ok === true && (await fetch(`${url}/health`)).ok) break;
    if (child.exitCode !== null) throw new Error(`${command.join(" ")} ended with ${child.exitCode}`);
    await Bun.sleep(100);
  }
  const stop = async (): Promise<void> => {
    child.kill("SIGTERM");
    await child.exited;
  };
  return { name, url, pid: child.pid, stop };
}
