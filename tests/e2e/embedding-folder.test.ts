/**
 * Whole program with an embedding model's folder, which has no vocabulary projection: on the CPU and on the
 * emulated GPU.
 */
import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import OpenAI from "openai";
import { writeEmbeddingModel } from "../support/embedding-model.ts";
import { Program } from "./program.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-embedding-folder-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const folderOf = (pooling: "lasttoken" | "mean_tokens"): string =>
  writeEmbeddingModel(join(scratch, pooling), pooling);

const texts = Array.from({ length: 12 }, (_, i) => `Text number ${i}, ${"and more words ".repeat(i)}`);

/**
 * Returns vectors of all texts in one request, and checks some of them alone; they must be equal if
 * `isExact`.
 */
async function vectorsOf(dir: string, device: string, isExact: boolean): Promise<number[][]> {
  const program = Program.bunting(["serve", dir, "--device", device, "--port", "0", "--threads", "2"]);
  try {
    const baseURL = `${await program.url()}/v1`;
    const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
    const model = (await client.models.list()).data[0]!.id;
    const embed = async (input: string[]) =>
      (await client.embeddings.create({ model, input })).data.map(({ embedding }) => embedding);
    const all = await embed(texts);
    for (const index of isExact ? [0, 7, 11] : [])
      expect(await embed([texts[index]!])).toEqual([all[index]!]);
    const chat = client.chat.completions.create({ model, messages: [{ role: "user", content: "Hello." }] });
    await expect(Promise.resolve(chat)).rejects.toThrow("this model");
    return all;
  } finally {
    program.signal("SIGTERM");
    await program.exitCode();
  }
}

const cosineOf = (a: readonly number[], b: readonly number[]): number =>
  a.reduce((sum, value, i) => sum + value * b[i]!, 0);

test("by the last token, and by the mean", async () => {
  const [last, mean] = [folderOf("lasttoken"), folderOf("mean_tokens")];
  const byLast = await vectorsOf(last, "cpu", true);
  const byMean = await vectorsOf(mean, "cpu", true);
  expect(byLast.map(({ length }) => length)).toEqual(texts.map(() => 96));
  for (const [i, vector] of byLast.entries()) {
    expect(cosineOf(vector, vector)).toBeCloseTo(1, 5);
    expect(cosineOf(vector, byMean[i]!)).toBeLessThan(0.99);
  }
  const emulated = await vectorsOf(mean, "emu", false);
  for (const [i, vector] of emulated.entries()) expect(cosineOf(vector, byMean[i]!)).toBeGreaterThan(0.99);
}, 120_000);
