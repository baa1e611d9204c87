/**
 * Durability of batch jobs. The test kills their server at random moments, again and again. In the end each
 * line has the one answer of an undisturbed run. CRASHES is the number of kills on the simulated device
 * (default 200, three minutes), MODEL_CRASHES that on the embedded model (default 5): `CRASHES=1000
 * MODEL_CRASHES=50 npx bun test tests/e2e/crash.test.ts`.
 */

import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { SeededRandom } from "../../base/random.ts";

const SEED = Number(process.env.PROPERTY_SEED ?? Math.floor(Math.random() * 2 ** 32));

/** Server that is killed, and its jobs. */
interface Trial {
  readonly device: string;
  readonly crashes: number;
  readonly lines: number;
  /** Lifetime of a process at most, after it listens. */
  readonly lifeMs: number;
  /** Route that creates its batches. */
  readonly route: "/batches" | "/messages/batches";
  /** Command of a server that works on a folder and prints its address. */
  readonly command: (data: string) => readonly string[];
}

const main = resolve(import.meta.dir, "../../server/main.ts");
const trials: readonly Trial[] = [
  {
    device: "the simulated device",
    crashes: Number(process.env.CRASHES ?? 200),
    lines: 2000,
    lifeMs: 300,
    route: "/batches",
    command: (data) => [join(import.meta.dir, "crash-process.ts"), data],
  },
  {
    device: "the simulated device, of messages,",
    crashes: Math.ceil(Number(process.env.CRASHES ?? 200) / 10),
    lines: 2000,
    lifeMs: 300,
    route: "/messages/batches",
    command: (data) => [join(import.meta.dir, "crash-process.ts"), data],
  },
  {
    device: "the demo model",
    crashes: Number(process.env.MODEL_CRASHES ?? 5),
    lines: 400,
    lifeMs: 1000,
    route: "/batches",
    command: (data) => [main, "serve", "--device", "cpu", "--port", "0", "--data", data],
  },
];

function inputOf({ lines, route }: Trial): string {
  const input = Array.from({ length: lines }, (_, index) => {
    const content = `You are asked about part ${index % 40} of a long story. Question ${index}: who is there?`;
    const messages = [{ role: "user", content }];
    const body = { model: "demo", messages, max_tokens: 6, seed: index, temperature: index % 2 };
    const custom_id = `line-${index}`;
    if (route === "/messages/batches") return JSON.stringify({ custom_id, params: body });
    return JSON.stringify({ custom_id, method: "POST", url: "/v1/chat/completions", body });
  });
  return route === "/batches" ? input.join("\n") : `{"requests":[${input.join()}]}`;
}

interface Life {
  readonly origin: string;
  kill(): Promise<void>;
}

async function live({ command }: Trial, data: string): Promise<Life> {
  const child = Bun.spawn([process.execPath, ...command(data)], { stdout: "pipe", stderr: "inherit" });
  const kill = async (): Promise<void> => {
    child.kill("SIGKILL");
    await child.exited;
  };
  const decoder = new TextDecoder();
  let said = "";
  for await (const bytes of child.stdout) {
    said += decoder.decode(bytes, { stream: true });
    const origin = /^(?:Ready in .* at )?(http:\/\/[^/\s]+)/m.exec(said)?.[1];
    if (origin !== undefined && said.endsWith("\n")) return { origin, kill };
  }
  throw new Error(`the server did not start: ${said}`);
}

async function ask<Answer>(life: Life, route: string, init: RequestInit = {}): Promise<Answer> {
  const response = await fetch(`${life.origin}/v1${route}`, init);
  if (!response.ok) throw new Error(`${route}: ${response.status} ${await response.text()}`);
  return (await response.json()) as Answer;
}

/** Line of a result, in OpenAI's format or in Anthropic's. */
interface OutputLine {
  readonly custom_id: string;
  readonly response?: { readonly body: { readonly choices: unknown } };
  readonly result?: { readonly type: string; readonly message?: { readonly content: unknown } };
}

interface Batch {
  readonly id: string;
  readonly status: string;
  readonly output_file_id: string | null;
  readonly error_file_id: string | null;
  readonly request_counts: object;
}

async function begin(life: Life, { route }: Trial, input: string): Promise<string> {
  const headers = { "content-type": "application/json" };
  if (route === "/messages/batches")
    return (await ask<Batch>(life, route, { method: "POST", body: input, headers })).id;
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new File([input], "in.jsonl"));
  const file = await ask<{ readonly id: string }>(life, "/files", { method: "POST", body: form });
  const body = { input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h" };
  return (await ask<Batch>(life, "/batches", { method: "POST", body: JSON.stringify(body), headers })).id;
}

/** Returns the answer of each line, in order of the output. */
async function answersOf(
  life: Life,
  { id, output_file_id: file }: Batch,
): Promise<(readonly [string, unknown])[]> {
  const path = id.startsWith("msgbatch") ? `/messages/batches/${id}/results` : `/files/${file}/content`;
  const text = await (await fetch(`${life.origin}/v1${path}`)).text();
  return text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as OutputLine)
    .map(({ custom_id, response, result }) => [
      custom_id,
      response?.body.choices ?? [result!.type, result!.message?.content],
    ]);
}

async function ended(life: Life, id: string): Promise<Batch> {
  for (;;) {
    const batch = await ask<Batch>(life, `/batches/${id}`);
    if (batch.status === "completed") return batch;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

for (const trial of trials) {
  const { device, crashes, lines, lifeMs } = trial;
  test(
    `on ${device} each line has its one answer after ${crashes} crashes`,
    async () => {
      const data = mkdtempSync(join(tmpdir(), "bunting-crash-"));
      const random = new SeededRandom(SEED);
      const input = inputOf(trial);
      let life = await live(trial, data);
      try {
        const undisturbed = await answersOf(life, await ended(life, await begin(life, trial, input)));
        expect(undisturbed.map(([id]) => id)).toEqual(
          Array.from({ length: lines }, (_, index) => `line-${index}`),
        );
        for (let crashed = 0; crashed < crashes; ) {
          const id = await begin(life, trial, input);
          for (let isEnded = false; !isEnded && crashed < crashes; crashed++) {
            await Bun.sleep(random.below(lifeMs));
            await life.kill();
            life = await live(trial, data);
            isEnded = (await ask<Batch>(life, `/batches/${id}`)).status === "completed";
          }
          const batch = await ended(life, id);
          expect(batch.request_counts).toEqual({ total: lines, completed: lines, failed: 0 });
          expect(batch.error_file_id).toBeNull();
          expect(await answersOf(life, batch)).toEqual(undisturbed);
        }
      } catch (error) {
        throw new Error(`with PROPERTY_SEED=${SEED}`, { cause: error });
      } finally {
        await life.kill();
        rmSync(data, { recursive: true, force: true });
      }
    },
    20_000 + 3000 * crashes,
  );
}
