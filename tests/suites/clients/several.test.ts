/** Official client of Ollama, beside a server of several models that take turns in memory. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { Ollama } from "ollama";
import { Program } from "../../e2e/program.ts";

const program = new Program([process.execPath, join(import.meta.dir, "../several-server.ts")]);
let client: Ollama;
beforeAll(async () => {
  client = new Ollama({ host: (await program.outputMatch(/http:\S+/))[0] });
}, 60_000);
afterAll(async () => {
  program.endInput();
  expect([await program.exitCode(), program.errors]).toEqual([0, ""]);
}, 60_000);

const messages = [{ role: "user", content: "Who are you?" }];
const options = { num_predict: 4, temperature: 0 };
const present = async () => (await client.ps()).models.map(({ name }) => name);

test("all models are listed and shown, loaded or not", async () => {
  const { models } = await client.list();
  expect(models.map(({ name }) => name)).toEqual(["first", "second", "embed"]);
  expect(new Set(models.map(({ digest }) => digest)).size).toBe(3);
  expect(await present()).toEqual([]);
  const shown = await Promise.all(models.map(({ name }) => client.show({ model: name })));
  expect(shown.map(({ capabilities }) => capabilities[0])).toEqual(["completion", "completion", "embedding"]);
});

test("each answers by its name in turn, whole and as a stream", async () => {
  const { message } = await client.chat({ model: "first", messages, options });
  for (const model of ["second", "first", "second:latest"]) {
    let text = "";
    for await (const part of await client.chat({ model, messages, options, stream: true })) {
      expect(part.model).toBe(model);
      text += part.message.content;
      if (part.done) expect(part.load_duration).toBeGreaterThan(0);
    }
    expect(text).toBe(message.content);
    const { models } = await client.ps();
    expect(models.map(({ name }) => name)).toEqual([model.replace(":latest", "")]);
    expect(models[0]!.size).toBeGreaterThan(11_000_000);
    expect((await client.chat({ model, messages, options })).message.content).toBe(text);
  }
}, 60_000);

test("keep_alive holds a model for its time, for ever, and not at all", async () => {
  const minutesLeft = async () =>
    Math.round((new Date((await client.ps()).models[0]!.expires_at).getTime() - Date.now()) / 60_000);
  await client.generate({ model: "first", prompt: "", keep_alive: "5m" });
  expect(await minutesLeft()).toBe(5);
  await client.chat({ model: "first", messages, options, keep_alive: -1 });
  expect(await minutesLeft()).toBeGreaterThan(1e6);
  await client.chat({ model: "first", messages, options, keep_alive: 0 });
  while ((await present()).length > 0);
  expect((await client.generate({ model: "first", prompt: "", keep_alive: 0 })).done_reason).toBe("unload");
  expect(await present()).toEqual([]);
}, 60_000);

test("texts are embedded by a model that does nothing else", async () => {
  const { embeddings } = await client.embed({ model: "embed", input: ["one", "two"] });
  expect(embeddings.map(({ length }) => length)).toEqual([96, 96]);
}, 60_000);

test("a pull tells of its progress to the last byte", async () => {
  const lines = [];
  for await (const line of await client.pull({ model: "Tiny/Demo", stream: true })) lines.push(line);
  expect(lines.at(-1)!.status).toBe("success");
  const total = Math.max(...lines.map((line) => line.total ?? 0));
  const done = lines.filter((line) => line.total === total).map(({ completed }) => completed);
  expect(done).toEqual(done.toSorted((a, b) => a - b));
  expect(done.at(-1)).toBe(total);
});

test("what cannot be done is refused with a sentence", async () => {
  const failure = async (asked: Promise<unknown>) => String(await asked.catch((error: unknown) => error));
  const unknown = 'model "third" not found; served here: first, second, embed';
  expect(await failure(client.chat({ model: "third", messages }))).toContain(unknown);
  expect(await failure(client.chat({ model: "third", messages, stream: true }))).toContain(unknown);
  expect(await failure(client.pull({ model: "third" }))).toContain('"third" names no model');
  const fixed = "models are not made, copied, sent or deleted here";
  expect(await failure(client.copy({ source: "first", destination: "other" }))).toContain(fixed);
  expect(await failure(client.delete({ model: "first" }))).toContain(fixed);
  expect(await failure(client.create({ model: "other", from: "first" }))).toContain(fixed);
  expect(await failure(client.push({ model: "first" }))).toContain(fixed);
});
