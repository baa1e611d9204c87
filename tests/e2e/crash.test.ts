/**
 * A job survives: its server is killed at random moments, again and again, and in the end each line has the one answer that it has in a run
 * that nobody disturbs. CRASHES says how often (100 unless told, which takes a minute and a half): `CRASHES=1000 npx bun test tests/e2e/crash.test.ts`.
 */

import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SeededRandom } from "../../scheduler/random.ts";

const CRASHES = Number(process.env.CRASHES ?? 100);
const LINES = 2000;
/** A process lives so long at most, after it listens. */
const LIFE_MS = 300;
const SEED = Number(process.env.PROPERTY_SEED ?? Math.floor(Math.random() * 2 ** 32));

const input = Array.from({ length: LINES }, (_, index) => {
  const content = `You are asked about part ${index % 40} of a long story. Question ${index}: who is there?`;
  const body = { model: "demo", messages: [{ role: "user", content }], max_tokens: 6, seed: index };
  return JSON.stringify({ custom_id: `line ${index}`, method: "POST", url: "/v1/chat/completions", body });
}).join("\n");

interface Life {
  readonly origin: string;
  kill(): Promise<void>;
}

async function live(data: string): Promise<Life> {
  const program = join(import.meta.dir, "crash-process.ts");
  const child = Bun.spawn([process.execPath, program, data], { stdout: "pipe", stderr: "inherit" });
  const reader = child.stdout.getReader();
  const { value } = await reader.read();
  if (value === undefined) throw new Error("the server did not start");
  const kill = async (): Promise<void> => {
    child.kill("SIGKILL");
    await child.exited;
  };
  return { origin: new TextDecoder().decode(value).trim(), kill };
}

async function ask<Answer>(life: Life, route: string, init: RequestInit = {}): Promise<Answer> {
  const response = await fetch(`${life.origin}/v1${route}`, init);
  if (!response.ok) throw new Error(`${route}: ${response.status} ${await response.text()}`);
  return (await response.json()) as Answer;
}

interface Batch {
  readonly id: string;
  readonly status: string;
  readonly output_file_id: string | null;
  readonly error_file_id: string | null;
  readonly request_counts: object;
}

async function begin(life: Life): Promise<string> {
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new File([input], "in.jsonl"));
  const file = await ask<{ readonly id: string }>(life, "/files", { method: "POST", body: form });
  const body = { input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h" };
  const headers = { "content-type": "application/json" };
  return (await ask<Batch>(life, "/batches", { method: "POST", body: JSON.stringify(body), headers })).id;
}

/** What each line says, in order of the output. */
async function answersOf(
  life: Life,
  { output_file_id: file }: Batch,
): Promise<(readonly [string, unknown])[]> {
  const text = await (await fetch(`${life.origin}/v1/files/${file}/content`)).text();
  return text
    .trimEnd()
    .split("\n")
    .map(
      (line) =>
        JSON.parse(line) as { readonly custom_id: string; readonly response: { readonly body: object } },
    )
    .map(({ custom_id, response }) => [custom_id, (response.body as { readonly choices: unknown }).choices]);
}

async function ended(life: Life, id: string): Promise<Batch> {
  for (;;) {
    const batch = await ask<Batch>(life, `/batches/${id}`);
    if (batch.status === "completed") return batch;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

test(
  `each line has its one answer after ${CRASHES} crashes`,
  async () => {
    const data = mkdtempSync(join(tmpdir(), "bunting-crash-"));
    const random = new SeededRandom(SEED);
    try {
      let life = await live(data);
      const undisturbed = await answersOf(life, await ended(life, await begin(life)));
      expect(undisturbed.map(([id]) => id)).toEqual(
        Array.from({ length: LINES }, (_, index) => `line ${index}`),
      );
      for (let crashes = 0; crashes < CRASHES; ) {
        const id = await begin(life);
        for (let isEnded = false; !isEnded && crashes < CRASHES; crashes++) {
          await Bun.sleep(random.below(LIFE_MS));
          await life.kill();
          life = await live(data);
          isEnded = (await ask<Batch>(life, `/batches/${id}`)).status === "completed";
        }
        const batch = await ended(life, id);
        expect(batch.request_counts).toEqual({ total: LINES, completed: LINES, failed: 0 });
        expect(batch.error_file_id).toBeNull();
        expect(await answersOf(life, batch)).toEqual(undisturbed);
      }
      await life.kill();
    } catch (error) {
      throw new Error(`with PROPERTY_SEED=${SEED}`, { cause: error });
    } finally {
      rmSync(data, { recursive: true, force: true });
    }
  },
  20_000 + 3000 * CRASHES,
);
