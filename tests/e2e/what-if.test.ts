/** POST /v1/what-if: recorded requests, simulated with changes. */
import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { RecordingWriter, readRecording } from "../../server/recording/file.ts";
import { recordChats } from "../support/recorded.ts";
import { bodyOf, post, startTestServer } from "./server.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-what-if-"));
afterAll(() => rmSync(scratch, { recursive: true }));

interface Answer {
  readonly recorded: object;
  readonly changes: object;
  readonly before: Readonly<Record<string, { readonly p99: number }>>;
  readonly after: Readonly<Record<string, { readonly p99: number }>>;
}

test("a second engine shortens the waits of those that were recorded", async () => {
  const path = join(scratch, "chats");
  recordChats(path, 24);
  const server = startTestServer({ recording: path });
  const ask = async (change: object) => (await (await post(server, "/v1/what-if", change)).json()) as Answer;
  const two = await ask({ engines: 2 });
  expect(two).toMatchObject({
    object: "what_if",
    changes: { engines: 2, tbt_ms: null },
    recorded: { calls: 24, simulated_calls: 24, engines: 1 },
    before: { unanswered: 0 },
    after: { unanswered: 0 },
  });
  expect(two.after.total_ms!.p99).toBeLessThan(two.before.total_ms!.p99);
  const same = await ask({ engines: 1 });
  expect(same.after).toEqual(same.before);
  expect(same.before).toEqual(two.before);
  await server.close();
}, 30_000);

test("what cannot be simulated is refused with a sentence", async () => {
  const empty = join(scratch, "empty");
  const writer = new RecordingWriter(empty);
  writer.write(readRecording(join(scratch, "chats")).head);
  writer.close();
  const keyed = startTestServer({ keys: { keys: ["user"], adminKeys: ["operator"] } });
  const recorded = startTestServer({ recording: empty });
  const refusal = async (server: typeof keyed, body: object, key = "operator") => {
    const headers = { authorization: `Bearer ${key}` };
    const response = await post(server, "/v1/what-if", body, { headers });
    const { error } = await bodyOf(response);
    return [response.status, error.message];
  };
  const text = expect.stringContaining;
  expect(await refusal(keyed, { engines: 2 }, "user")).toEqual([403, text("--admin-key")]);
  expect(await refusal(keyed, { engines: 2 })).toEqual([501, text("bunting serve --record <file>")]);
  expect(await refusal(recorded, { tbt_ms: 100 })).toEqual([422, "no request has been recorded yet"]);
  expect(await refusal(recorded, {})).toEqual([400, text("engines or tbt_ms")]);
  expect(await refusal(recorded, { engines: 65 })).toEqual([400, text("64")]);
  expect(await refusal(recorded, { engine: 2 })).toEqual([400, text("engine is not a field")]);
  await keyed.close();
  await recorded.close();
});
