/** OpenAI's Conversations: the official client, with responses that belong to one. */

import { afterEach, beforeEach, expect, spyOn, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type OpenAI from "openai";
import type { ResponseCreateParamsNonStreaming } from "openai/resources/responses/responses";
import { begin, clientOf as openaiClientOf } from "./jobs-server.ts";
import { startTestServer, type TestServer } from "./server.ts";

const keys = ["key-of-ann", "key-of-bob"];

let data = "";
let server: TestServer;
let ann: OpenAI;
let bob: OpenAI;

function open(): void {
  const responseLimits = { countMax: 6, bytesMax: 2 ** 24, ageSecondsMax: 1000, chainMax: 9 };
  server = startTestServer({ keys: { keys }, data, stepMs: 1, responseLimits });
  [ann, bob] = keys.map((key) => openaiClientOf(server, key)) as [OpenAI, OpenAI];
}

beforeEach(() => {
  data = mkdtempSync(join(tmpdir(), "bunting-conversations-"));
  open();
});
afterEach(async () => {
  await server.settled();
  await server.close();
  rmSync(data, { recursive: true });
});

type Body = ResponseCreateParamsNonStreaming;
const asking = (input: Body["input"], more: Partial<Body> = {}): Body => ({
  model: "demo",
  input: input!,
  max_output_tokens: 16,
  ...more,
});
const said = (role: "user" | "assistant", content: string) => ({ type: "message" as const, role, content });

async function failure(promise: PromiseLike<unknown>) {
  try {
    await promise;
  } catch (error) {
    return error as InstanceType<typeof OpenAI.APIError>;
  }
  throw new Error("expected a failure");
}

async function itemsOf(id: string) {
  return await Array.fromAsync(ann.conversations.items.list(id, { order: "asc" }));
}

test("a conversation is created, read, changed and deleted", async () => {
  const empty = await ann.conversations.create();
  expect(empty).toMatchObject({ object: "conversation", metadata: {}, created_at: expect.any(Number) });
  const { id } = await ann.conversations.create({
    metadata: { about: "sea" },
    items: [said("user", "Who?"), said("assistant", "Me.")],
  });
  expect(id).toMatch(/^conv_/);
  expect(await ann.conversations.retrieve(id)).toMatchObject({ id, metadata: { about: "sea" } });
  const changed = await ann.conversations.update(id, { metadata: { about: "sun" } });
  expect(changed).toEqual(await ann.conversations.retrieve(id));
  expect(changed.metadata).toEqual({ about: "sun" });
  expect((await itemsOf(id)).map((item) => (item as { role: string }).role)).toEqual(["user", "assistant"]);
  expect(await ann.conversations.delete(id)).toEqual({ id, object: "conversation.deleted", deleted: true });
  for (const gone of [
    () => ann.conversations.retrieve(id),
    () => ann.conversations.delete(id),
    () => itemsOf(id),
  ])
    expect(await failure(gone())).toMatchObject({ status: 404, code: "conversation_not_found" });
});

test("items are added, listed in pages, read and deleted", async () => {
  const { id } = await ann.conversations.create();
  const { items } = ann.conversations;
  const added = await items.create(id, { items: ["1", "2", "3"].map((text) => said("user", text)) });
  expect([added.data.length, added.has_more, added.last_id]).toEqual([3, false, added.data[2]!.id!]);
  const newest = await items.list(id, { limit: 2 });
  const ids = added.data.map((item) => item.id!);
  expect([newest.data.map((item) => item.id!), newest.has_more]).toEqual([[ids[2]!, ids[1]!], true]);
  const rest = await items.list(id, { limit: 2, after: ids[1]! });
  expect([rest.data.map((item) => item.id!), rest.has_more]).toEqual([[ids[0]!], false]);
  expect(await items.retrieve(ids[1]!, { conversation_id: id })).toEqual(added.data[1]!);
  expect(await items.delete(ids[1]!, { conversation_id: id })).toMatchObject({ id, object: "conversation" });
  expect((await itemsOf(id)).map((item) => item.id!)).toEqual([ids[0]!, ids[2]!]);
  for (const gone of [
    () => items.retrieve(ids[1]!, { conversation_id: id }),
    () => items.delete(ids[1]!, { conversation_id: id }),
  ])
    expect((await failure(gone())).status).toBe(404);
  await items.create(id, { items: [added.data[0] as never] });
  expect((await itemsOf(id)).map((item) => item.id!)).toEqual([ids[0]!, ids[2]!]);
});

test("a response sees the conversation, and its items are added when it ends", async () => {
  const { id } = await ann.conversations.create({ items: [said("user", "Who keeps the light?")] });
  const first = await ann.responses.create(asking("And who paid?", { conversation: id }));
  expect(first.conversation).toEqual({ id });
  const alone = await ann.responses.create(
    asking([said("user", "Who keeps the light?"), said("user", "And who paid?")]),
  );
  expect([first.usage!.input_tokens, first.output_text]).toEqual([
    alone.usage!.input_tokens,
    alone.output_text,
  ]);
  const all = await itemsOf(id);
  expect(all.slice(2) as unknown[]).toEqual(first.output);
  expect(all.map((item) => (item as { role: string }).role)).toEqual(["user", "user", "assistant"]);
  const events = await Array.fromAsync(
    await ann.responses.create({ ...asking("Why?", { conversation: { id }, store: false }), stream: true }),
  );
  expect(events.at(-1)).toMatchObject({ response: { conversation: { id }, store: false } });
  expect((await itemsOf(id)).length).toBe(5);
  const background = await ann.responses.create(asking("When?", { conversation: id, background: true }));
  while ((await ann.responses.retrieve(background.id)).status === "in_progress");
  expect((await itemsOf(id)).length).toBe(7);
  const count = await ann.responses.inputTokens.count({ model: "demo", input: "Where?", conversation: id });
  const last = await ann.responses.create(asking("Where?", { conversation: id }));
  expect(last.usage!.input_tokens).toBe(count.input_tokens);
  const next = await ann.responses.create(asking(undefined, { conversation: id }));
  expect((await itemsOf(id)).length).toBe(9 + next.output.length);
  const reference = { type: "item_reference" as const, id: all[0]!.id! };
  const repeated = await ann.responses.create(asking([reference], { conversation: id }));
  expect(repeated.status).not.toBe("failed");
  expect((await itemsOf(id)).length).toBe(9 + next.output.length + repeated.output.length);
});

test("a response that fails, or is cancelled, adds nothing", async () => {
  const { id } = await ann.conversations.create();
  expect((await failure(ann.responses.create(asking("x".repeat(99_999), { conversation: id })))).status).toBe(
    400,
  );
  const long = asking("Who?", {
    conversation: id,
    background: true,
    max_output_tokens: 1500,
    ...{ ignore_eos: true },
  });
  const running = await ann.responses.create(long);
  expect((await ann.responses.cancel(running.id)).status).toBe("cancelled");
  expect(await itemsOf(id)).toEqual([]);
});

test("a conversation that is deleted while a response runs is not its conversation", async () => {
  const { id } = await ann.conversations.create();
  const begun = await ann.responses.create(
    asking("Who?", { conversation: id, background: true, max_output_tokens: 200, ...{ ignore_eos: true } }),
  );
  const log = spyOn(console, "error").mockImplementation(() => {});
  await ann.conversations.delete(id);
  let ended = begun;
  while (ended.status === "in_progress") ended = await ann.responses.retrieve(begun.id);
  log.mockRestore();
  expect([ended.status, ended.conversation]).toEqual(["incomplete", null]);
});

test("keys have conversations of their own, which outlive the server", async () => {
  const { id } = await ann.conversations.create({ items: [said("user", "Who?")] });
  const { items } = bob.conversations;
  for (const one of [
    () => bob.conversations.retrieve(id),
    () => bob.conversations.update(id, { metadata: {} }),
    () => bob.conversations.delete(id),
    () => items.create(id, { items: [said("user", "Me")] }),
    () => items.list(id),
    () => bob.responses.create(asking("Hi", { conversation: id })),
  ])
    expect((await failure(one())).status).toBe(404);
  await server.close();
  open();
  expect((await itemsOf(id)).length).toBe(1);
  expect((await ann.responses.create(asking("And?", { conversation: id }))).conversation).toEqual({ id });
});

test("conversations and responses share a key's room, and are not each other", async () => {
  const { id } = await ann.conversations.create();
  const responses: { readonly id: string }[] = [];
  for (let made = 0; made < 4; made++) responses.push(await ann.responses.create(asking("Hi")));
  await ann.conversations.retrieve(id); // is now the last used one
  for (let made = 0; made < 3; made++) await ann.conversations.create();
  expect((await ann.conversations.retrieve(id)).id).toBe(id);
  expect((await failure(ann.responses.retrieve(responses[0]!.id))).status).toBe(404);
  expect((await ann.responses.retrieve(responses[3]!.id)).id).toBe(responses[3]!.id);
  for (const one of [
    () => ann.responses.retrieve(id),
    () => ann.responses.delete(id),
    () => ann.responses.create(asking("Hi", { previous_response_id: id })),
    () => ann.conversations.retrieve(responses[3]!.id),
    () => ann.conversations.delete(responses[3]!.id),
    () => ann.responses.create(asking("Hi", { conversation: responses[3]!.id })),
  ])
    expect((await failure(one())).status).toBe(404);
});

test("what is wrong is refused by its name", async () => {
  const { id } = await ann.conversations.create();
  const { conversations } = ann;
  const image = { type: "input_image", image_url: "x" };
  const refused: readonly (readonly [object, string])[] = [
    [{ items: "Hi" }, "items"],
    [{ items: [5] }, "items[0]"],
    [{ items: [{ role: "user", content: [image] }] }, "items[0].content[0].type"],
    [{ items: [{ role: "king", content: "" }] }, "items[0].role"],
    [{ items: [said("user", "x".repeat(9 * 2 ** 20))] }, "items"],
    [{ items: [], colour: "red" }, "colour"],
  ];
  for (const [body, param] of refused) {
    const error = await failure(conversations.items.create(id, body as never));
    expect([error.status, error.param]).toEqual([400, param]);
    const atOnce = await failure(conversations.create(body as never));
    expect([atOnce.status, atOnce.param]).toEqual([400, param]);
  }
  const lost = { type: "item_reference" as const, id: "msg_1" };
  expect((await failure(conversations.create({ items: [lost] }))).status).toBe(404);
  expect((await failure(conversations.update(id, { metadata: { a: 5 } as never }))).param).toBe("metadata.a");
  const past = [said("user", ""), said("assistant", "Yes."), said("user", "Go on.")];
  const seen = { ...past[0], content: [image] };
  const { response } = await conversations
    .create({ items: [seen, ...past.slice(1)] as never })
    .withResponse();
  expect(response.headers.get("x-bunting-ignored")).toBe("items.content.input_image");
  const body = { model: "demo", input: "Hi", conversation: id };
  const line = JSON.stringify({ custom_id: "1", method: "POST", url: "/v1/responses", body });
  const { id: batch } = await begin(ann, [line], { endpoint: "/v1/responses" });
  await server.jobs!.runner.ended(batch);
  const { error_file_id: errors } = await ann.batches.retrieve(batch);
  expect(await (await ann.files.content(errors!)).text()).toContain("lines run in any order");
});
