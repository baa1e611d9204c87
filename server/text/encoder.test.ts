import { afterEach, expect, test } from "bun:test";
import { join } from "node:path";
import { Encoder, EncoderBusyError } from "./encoder.ts";
import { loadTokenizer } from "./tokenizer.ts";

const folder = join(import.meta.dir, "../../tests/reference/tokenizers/qwen");
const workerUrl = new URL("./worker.ts", import.meta.url).href;
const tokenizer = loadTokenizer(folder);
const options = { addSpecialTokens: true };

let encoder = new Encoder(tokenizer, folder, workerUrl);
afterEach(() => {
  encoder.close();
  encoder = new Encoder(tokenizer, folder, workerUrl);
});

test("short and long texts get the tokenizer's own tokens, in whatever order they come", async () => {
  const texts = [20, 9000, 3, 40_000, 8193, 8192].map((length) =>
    "sings 小 of ".repeat(length).slice(0, length),
  );
  const tokens = await Promise.all(texts.map((text) => encoder.encode(text, options)));
  expect(tokens).toEqual(texts.map((text) => tokenizer.encode(text, options)));
});

test("a long rendered prompt keeps its stand-ins", async () => {
  const text = `<|im_start|>${"word ".repeat(3000)}\uFDD0|im_end|><|im_end|>`;
  const rendered = { text, standIns: new Map([["\uFDD0", "<"]]) };
  const tokens = await encoder.encodeRendered(rendered);
  expect(tokens).toEqual(tokenizer.encodeRendered(rendered));
  expect(tokens.filter(tokenizer.isControl).length).toBe(2);
});

test("too many long texts at once are refused, and the others are not", async () => {
  const text = "a b ".repeat(2100);
  const results = await Promise.allSettled(Array.from({ length: 65 }, () => encoder.encode(text, options)));
  expect(results.filter((result) => result.status === "fulfilled").length).toBe(64);
  const refused = results.find((result) => result.status === "rejected");
  expect(refused!.reason).toBeInstanceOf(EncoderBusyError);
});

test("for jobs short texts go to threads, too, and as many as come: tokens are the same", async () => {
  const forJobs = encoder.forJobs();
  const texts = Array.from({ length: 200 }, (_, index) => `${index} `.repeat(1 + (index % 40)));
  const tokens = await Promise.all(texts.map((text) => forJobs.encode(text, options)));
  expect(tokens).toEqual(texts.map((text) => tokenizer.encode(text, options)));
  const waiting = forJobs.encode("a b", options);
  forJobs.close();
  expect(waiting).rejects.toThrow("closed");
  expect(await forJobs.encode("a b", options)).toEqual(tokenizer.encode("a b", options));
  forJobs.close();
});

test("close rejects what waits, and a thread that cannot start rejects too", async () => {
  const waiting = encoder.encode("a".repeat(9000), options);
  encoder.close();
  expect(waiting).rejects.toThrow("closed");
  const broken = new Encoder(tokenizer, "/nowhere", workerUrl);
  expect(broken.encode("a".repeat(9000), options)).rejects.toThrow("/nowhere/tokenizer.json");
});
