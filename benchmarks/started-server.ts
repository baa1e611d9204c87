/** Server in a separate process, with the activity of its engine. */

import type { Target } from "../server/cli/client.ts";

const SAMPLE_MS = 100;
/** Quiet time after which no more writes are expected; the disk's thread reports its counts once a second. */
const QUIET_MS = 2000;
const DEVICE_SECONDS = 'bunting_step_seconds_sum{engine="0",part="device"}';

export interface Started {
  readonly target: Target;
  readonly pid: number;
  stop(): Promise<void>;
}

/** Starts `command`, with the options to listen on a free port; resolves when it reports that it is ready. */
export async function startServer(
  command: readonly string[],
  cwd: string,
  env: Readonly<Record<string, string>> = {},
): Promise<Started> {
  const child = Bun.spawn([...command, "--port", String(freePort())], {
    cwd,
    env: { ...process.env, BUNTING_DATA: "off", ...env },
    stdout: "pipe",
    stderr: "inherit",
  });
  const stop = async (): Promise<void> => {
    child.kill("SIGTERM");
    await child.exited;
  };
  let said = "";
  for await (const bytes of child.stdout) {
    said += new TextDecoder().decode(bytes);
    const url = /Ready in .* at (http:\S+)\/v1/.exec(said)?.[1];
    if (url !== undefined) return { target: { url, apiKey: null }, pid: child.pid, stop };
  }
  throw new Error(`${command.join(" ")} ended before it was ready: ${said}`);
}

function freePort(): number {
  const probe = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response() });
  const { port } = probe;
  probe.stop(true);
  return port!;
}

/** Milliseconds that the engine has spent in native code so far. */
export async function deviceMs(target: Target): Promise<number> {
  return 1000 * metricOf(await (await fetch(`${target.url}/metrics`)).text(), DEVICE_SECONDS);
}

/** Waits until nothing has been stored on disk for a while. */
export async function untilStored({ url, apiKey }: Target): Promise<void> {
  let before = -1;
  for (;;) {
    const headers: Record<string, string> = apiKey === null ? {} : { authorization: `Bearer ${apiKey}` };
    const metrics = await (await fetch(`${url}/metrics`, { headers })).text();
    const now = Number(/^bunting_kv_disk_total\{.*event="stored".*\} (\d+)/m.exec(metrics)?.[1] ?? 0);
    if (now > 0 && now === before) return;
    before = now;
    await Bun.sleep(QUIET_MS);
  }
}

function metricOf(metrics: string, name: string): number {
  const line = metrics.split("\n").find((text) => text.startsWith(name));
  return Number(line?.split(" ")[1]);
}

/**
 * Watches the engine from the first to the last sample with at least `running` running sequences. `stop`
 * resolves to the share of that time outside native code; null without two such samples.
 */
export function watchEngine(target: Target, running: number): { stop(): Promise<number | null> } {
  const samples: { readonly timeMs: number; readonly deviceMs: number }[] = [];
  let isStopped = false;
  const watching = (async () => {
    while (!isStopped) {
      const timeMs = performance.now();
      const metrics = await (await fetch(`${target.url}/metrics`)).text();
      if (metricOf(metrics, "vllm:num_requests_running{") >= running) {
        samples.push({ timeMs, deviceMs: 1000 * metricOf(metrics, DEVICE_SECONDS) });
      }
      await Bun.sleep(SAMPLE_MS);
    }
  })();
  return {
    stop: async () => {
      isStopped = true;
      await watching;
      const [first, last] = [samples[0], samples.at(-1)];
      if (first === undefined || last === undefined || first === last) return null;
      return 1 - (last.deviceMs - first.deviceMs) / (last.timeMs - first.timeMs);
    },
  };
}
