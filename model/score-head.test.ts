import { afterAll, expect, test } from "bun:test";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { referenceModel } from "../tests/reference/models.ts";
import { editTensors } from "../tests/support/headless-folder.ts";
import { openModelFolder } from "./folder.ts";
import { ModelError } from "./model-error.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-score-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const hidden = 48;

/** Copy of the reference model with these configuration changes, and with tokens for yes and no. */
function folderOf(changes: object, tokens: object | null): string {
  const dir = mkdtempSync(join(scratch, "m-"));
  cpSync(referenceModel("qwen3").dir, dir, { recursive: true });
  const config = JSON.parse(readFileSync(join(dir, "config.json"), "utf8"));
  writeFileSync(join(dir, "config.json"), JSON.stringify({ ...config, ...changes }));
  if (tokens !== null) {
    mkdirSync(join(dir, "1_LogitScore"));
    writeFileSync(join(dir, "1_LogitScore", "config.json"), JSON.stringify(tokens));
  }
  return dir;
}

/** Model with `labels` rows in f32 in place of the vocabulary projection. */
function classifierOf(labels: number): string {
  const dir = folderOf({ architectures: ["Qwen3ForSequenceClassification"] }, null);
  const rows = Float32Array.from({ length: labels * hidden }, (_, i) => i / 8);
  editTensors(dir, (tensors) => {
    tensors.delete("lm_head.weight");
    const data = Buffer.from(rows.buffer);
    tensors.set("score.weight", { dtype: "F32", shape: [labels, hidden], data });
  });
  return dir;
}

test("a classifier's one row is the head, and the model writes no texts", () => {
  const { score, config } = openModelFolder(classifierOf(1));
  expect(score).toEqual({ weights: Float32Array.from({ length: hidden }, (_, i) => i / 8) });
  expect(config.isHeadless).toBe(true);
});

test("a classifier of several labels gives no scores", () => {
  expect(openModelFolder(classifierOf(2)).score).toEqual({
    refusal: "score.weight has 2 labels, and a score is of one",
  });
});

test("yes less no, or yes alone, are rows of the vocabulary projection", () => {
  const scoreOf = (tokens: object): Float32Array => {
    const { score } = openModelFolder(folderOf({}, tokens));
    if ("refusal" in score) throw new Error(score.refusal);
    return score.weights;
  };
  const yes = scoreOf({ true_token_id: 5, false_token_id: null });
  const no = scoreOf({ true_token_id: 9 });
  expect(yes).toHaveLength(hidden);
  expect(yes).not.toEqual(no);
  expect(scoreOf({ true_token_id: 5, false_token_id: 9 })).toEqual(yes.map((value, i) => value - no[i]!));
});

test("tokens outside of the vocabulary are a mistake of the folder; without tokens there are no scores", () => {
  for (const tokens of [{ true_token_id: 241 }, { true_token_id: 1, false_token_id: -1 }, {}]) {
    expect(() => openModelFolder(folderOf({}, tokens))).toThrow(ModelError);
  }
  expect(openModelFolder(folderOf({}, null)).score).toEqual({
    refusal: "its files have no score.weight and no 1_LogitScore/config.json",
  });
});
