import { afterEach, expect, test } from "bun:test";
import { join } from "node:path";
import type { ChatJob } from "../../text/encode-job.ts";
import { defaultLimits } from "../../text/jinja/budget.ts";
import { ChatTemplate } from "../../text/template.ts";
import { loadTokenizer } from "../../text/tokenizer.ts";
import { parseJson } from "../http/json/parse.ts";
import { defaultJsonLimits } from "../http/limits.ts";
import { Encoder, EncoderBusyError, EncoderStoppedError } from "./encoder.ts";

const folder = join(import.meta.dir, "../../tests/reference/tokenizers/qwen");
const workerUrl = new URL("./worker.ts", import.meta.url).href;
const tokenizer = loadTokenizer(folder);
const source = {
  template: `{% for m in messages %}
    {%- if m.role == 'critic' %}{{ raise_exception('no critics here') }}{% endif -%}
    {{ bos_token }}{{ "result" if m.role == "tool" else m.role }}: {{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}<|im_end|>
  {%- endfor %}{{ tools | tojson if tools }}{{ share }}{{ bos_token if add_generation_prompt }}`,
  toolTemplate: null,
  specialTokens: { bos_token: "<|im_start|>" },
};
const text = { tokenizer, template: new ChatTemplate(source, tokenizer.controlTexts) };
const options = { addSpecialTokens: true };

let encoder = new Encoder(text, folder, workerUrl);
afterEach(() => {
  encoder.close();
  encoder = new Encoder(text, folder, workerUrl);
});

test("short and long texts get the tokenizer's own tokens, in whatever order they come", async () => {
  const texts = [20, 9000, 3, 40_000, 8193, 8192].map((length) =>
    "sings 小 of ".repeat(length).slice(0, length),
  );
  const tokens = await Promise.all(texts.map((text) => encoder.encode(text, options)));
  expect(tokens).toEqual(texts.map((text) => tokenizer.encode(text, options)));
});

const settings = { threads: 1, firstUnits: 0, waitingMax: 64, idleMs: null };
const atOnce = new Encoder(text, folder, workerUrl, {
  ...settings,
  inlineUnitsMax: Number.POSITIVE_INFINITY,
});

type Chat = Omit<ChatJob, "kind">;

function chatOf(contents: readonly string[], more: Partial<Chat> = {}): Chat {
  const messages = contents.map((content, index) => ({
    role: index % 2 === 0 ? "user" : "assistant",
    content,
  }));
  return { messages, options: { addGenerationPrompt: true }, tokensMax: 100_000, wantsTokens: true, ...more };
}

function callOf(values: Readonly<Record<string, unknown>>): object {
  return { id: "a", type: "function", function: { name: "f", arguments: values } };
}

function jsonOf(text: string): Record<string, unknown> {
  return parseJson(text, defaultJsonLimits) as Record<string, unknown>;
}

test("a chat gets the same text, tokens and refusal on a thread as at once", async () => {
  const onThread = new Encoder(text, folder, workerUrl, { ...settings, inlineUnitsMax: 0 });
  const definition = '{"10": {"least": 1.0}, "2": -2e-7, "large": 12345678901234567890, "odd": "<|im_end|>"}';
  const { tools } = jsonOf(`{"tools": [${definition}, {}]}`) as { tools: object[] };
  const called = { role: "assistant", content: "", tool_calls: [callOf(jsonOf(definition))] };
  const addGenerationPrompt = false;
  const chats = [
    chatOf(["sings 小 of"]),
    chatOf(["<|im_end|> is text", "<|im_start|>", "so"], { wantsTokens: false }),
    chatOf(["a", "b"], { options: { addGenerationPrompt, continuesLast: true } }),
    chatOf(["a"], { options: { addGenerationPrompt, tools, templateKwargs: jsonOf('{"share": 1.0}') } }),
    { ...chatOf([]), messages: [called, called] },
    chatOf(["a ".repeat(5000)], { tokensMax: 10 }),
    { ...chatOf([]), messages: [{ role: "critic", content: "1" }] },
    chatOf(["a"], { options: { addGenerationPrompt, templateKwargs: { messages: [] } } }),
    chatOf(Array.from({ length: 2000 }, (_, index) => `${index}`)),
  ];
  const outcomes = await Promise.all(chats.map((chat) => atOnce.writeChat(chat)));
  expect(await Promise.all(chats.map((chat) => onThread.writeChat(chat)))).toEqual(outcomes);
  expect(await Promise.all(chats.map((chat) => encoder.writeChat(chat)))).toEqual(outcomes);
  onThread.close();
  const written = outcomes.map((outcome) => (outcome.kind === "written" ? outcome.text : outcome));
  expect(written.slice(0, 8)).toEqual([
    "<|im_start|>user: sings 小 of<|im_end|><|im_start|>",
    "<|im_start|>user: <|im_end|> is text<|im_end|><|im_start|>assistant: <|im_start|><|im_end|><|im_start|>user: so<|im_end|><|im_start|>",
    "<|im_start|>user: a<|im_end|><|im_start|>assistant: b",
    `<|im_start|>user: a<|im_end|>[${definition.replace("e-7", "e-07")}, {}]1.0`,
    `${`<|im_start|>assistant: [{"id": "a", "type": "function", "function": {"name": "f", "arguments": ${definition.replace("e-7", "e-07")}}}]<|im_end|>`.repeat(2)}<|im_start|>`,
    { kind: "tooLong", tokensAtLeast: expect.any(Number) },
    { kind: "refused", reason: expect.stringContaining("no critics here") },
    { kind: "refused", reason: 'chat_template_kwargs may not set "messages"' },
  ]);
});

test("control tokens in a chat on a thread are the template's own", async () => {
  const outcome = await encoder.writeChat(chatOf([`<|im_end|>${"word ".repeat(3000)}`]));
  const tokens = outcome.kind === "written" ? Array.from(outcome.tokens) : [];
  expect(tokens.filter(tokenizer.isControl).map((token) => tokenizer.spellingOf(token))).toEqual([
    "<|im_start|>",
    "<|im_end|>",
    "<|im_start|>",
  ]);
});

test("a chat whose request ends is rendered no further, and the next one is not held up", async () => {
  const endless = {
    ...source,
    template: "{% for a in range(30000) %}{% for b in range(30000) %}{% set c = a %}{% endfor %}{% endfor %}",
  };
  const limits = { ...defaultLimits, stepsMax: Number.POSITIVE_INFINITY };
  const template = new ChatTemplate(endless, tokenizer.controlTexts, () => new Date(), limits);
  let looks = 0;
  const isWanted = (): boolean => looks++ < 10;
  expect(() => template.render([], { addGenerationPrompt: false }, isWanted)).toThrow("nobody waits");

  const slow = new Encoder({ tokenizer, template }, folder, workerUrl, { ...settings, inlineUnitsMax: 0 });
  const first = new AbortController();
  const rendered = slow.until(first.signal).writeChat(chatOf(["a"]));
  const waiting = new AbortController();
  const behind = slow.until(waiting.signal).encode("a b", options);
  const next = slow.encode("a b", options);
  first.abort();
  waiting.abort();
  const ends = await Promise.allSettled([rendered, behind]);
  expect(ends.map((end) => end.status === "rejected" && end.reason instanceof EncoderStoppedError)).toEqual([
    true,
    true,
  ]);
  expect(await next).toEqual(tokenizer.encode("a b", options));
  expect(slow.until(first.signal).encode("a b", options)).rejects.toThrow(EncoderStoppedError);
  slow.close();
});

test("too many long texts at once are refused, and the others are not", async () => {
  const text = "a b ".repeat(2100);
  const results = await Promise.allSettled(Array.from({ length: 65 }, () => encoder.encode(text, options)));
  expect(results.filter((result) => result.status === "fulfilled").length).toBe(64);
  const refused = results.find((result) => result.status === "rejected");
  expect(refused!.reason).toBeInstanceOf(EncoderBusyError);
});

test("a job's texts get the same tokens here, while threads begin, and on threads", async () => {
  for (const firstUnits of [0, 100, 2 ** 21]) {
    const forJobs = new Encoder(text, folder, workerUrl, {
      threads: 2,
      inlineUnitsMax: 0,
      firstUnits,
      waitingMax: Number.POSITIVE_INFINITY,
      idleMs: 10_000,
    });
    const texts = Array.from({ length: 200 }, (_, index) => `${index} `.repeat(1 + (index % 40)));
    texts.push("a long one ".repeat(1000));
    for (let round = 0; round < 2; round++) {
      const tokens = await Promise.all(texts.map((text) => forJobs.encode(text, options)));
      expect(tokens).toEqual(texts.map((text) => tokenizer.encode(text, options)));
    }
    forJobs.close();
  }
});

test("what a job has on threads is rejected when they are closed, and what comes after is done", async () => {
  const forJobs = encoder.forJobs();
  const long = "a b ".repeat(3000);
  const waiting = forJobs.encode(long, options);
  forJobs.close();
  expect(waiting).rejects.toThrow("closed");
  expect(await forJobs.encode("a b", options)).toEqual(tokenizer.encode("a b", options));
  forJobs.close();
});

test("close rejects what waits, and a thread that cannot start rejects too", async () => {
  const waiting = encoder.encode("a".repeat(9000), options);
  encoder.close();
  expect(waiting).rejects.toThrow("closed");
  const broken = new Encoder(text, "/nowhere", workerUrl);
  expect(broken.encode("a".repeat(9000), options)).rejects.toThrow("/nowhere/tokenizer.json");
});

test("a template that takes long writes on a thread, and the next chat goes there at once", async () => {
  const slow = {
    ...source,
    template: `{% for i in range(100000) %}{% for k in range(100000) %}{% endfor %}{% endfor %}${source.template}`,
  };
  const slowText = { tokenizer, template: new ChatTemplate(slow, tokenizer.controlTexts) };
  const own = new Encoder(slowText, folder, workerUrl);
  let turns = 0;
  const ticking = setInterval(() => turns++, 0);
  const outcome = await own.writeChat(chatOf(["Hello"]));
  clearInterval(ticking);
  expect(turns).toBeGreaterThan(1);
  expect(outcome).toEqual({
    kind: "refused",
    reason: `the chat template took more than ${defaultLimits.stepsMax} operations`,
  });
  own.close();
}, 30_000);

test("texts are made into tokens elsewhere from the size on at which an expression takes long", async () => {
  const encode = (text: string) => {
    const before = process.threadCpuUsage();
    while (text.length >= 512 && process.threadCpuUsage(before).user < 30_000);
    return [...text].map(() => 1);
  };
  const slowText = { tokenizer: { ...tokenizer, encode }, template: text.template };
  const own = new Encoder(slowText, folder, workerUrl);
  own.probe();
  expect(own.inlineUnitsMax).toBeLessThanOrEqual(256);
  const short = "s".repeat(own.inlineUnitsMax);
  expect(await own.encode(short, options)).toEqual(encode(short));
  const long = "sing ".repeat(60);
  expect(await own.encode(long, options)).toEqual(tokenizer.encode(long, options)); // the thread's own
  own.close();
});

test("a pause in one run of a text sends no later text to the threads", async () => {
  let pauses = 1;
  const encode = () => {
    const before = process.threadCpuUsage();
    while (pauses > 0 && process.threadCpuUsage(before).user < 30_000);
    pauses -= 1;
    return [1];
  };
  const own = new Encoder(
    { tokenizer: { ...tokenizer, encode }, template: text.template },
    folder,
    workerUrl,
  );
  const { inlineUnitsMax } = own;
  expect(await own.encode("short", options)).toEqual([1]);
  expect(own.inlineUnitsMax).toBe(inlineUnitsMax);
  own.close();
});
