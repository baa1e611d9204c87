/**
 * Sensitivity of the comparison with transformers: a small change to any part of a model takes the logits out
 * of correctness.test.ts's tolerance. Without this, agreement there could mean a blind test.
 */
import { describe, expect, test } from "bun:test";
import { openModelFolder } from "../../model/folder.ts";
import type { LayerShape, ModelShape, Rope } from "../../model/shape.ts";
import { type ReferenceName, referenceModel } from "../reference/models.ts";
import { cosineOf } from "./compare.ts";
import { cpuLibrary } from "./library.ts";
import { Rig } from "./rig.ts";

const library = cpuLibrary();

/** Returns the worst cosine over the positions of the long prompt, with a changed shape. */
function worstCosine(name: ReferenceName, change: (shape: ModelShape) => Partial<ModelShape>): number {
  const model = referenceModel(name);
  const folder = openModelFolder(model.dir);
  const shape = { ...folder.config.shape, ...change(folder.config.shape) };
  const rig = new Rig(library, { ...folder, config: { ...folder.config, shape } }, { compute: "f32" });
  let worst = 1;
  const stream = rig.stream(model.prompts.long);
  rig.generate(stream, 1, 1, [], (position, logits) => {
    worst = Math.min(worst, cosineOf(logits, model.logits("f32", "long", position)));
  });
  rig.close();
  return worst;
}

const withRope = (change: object) => (shape: ModelShape) => ({
  ropes: shape.ropes.map((rope) => ({ ...rope, ...change }) as Rope),
});
const withLayers = (change: (layer: LayerShape) => Partial<LayerShape>) => (shape: ModelShape) => ({
  layers: shape.layers.map((layer) => ({ ...layer, ...change(layer) })),
});
const plain = withRope({ kind: "plain" });

describe("with nothing changed the logits agree, with a change they do not", () => {
  test.each<[ReferenceName, string, (shape: ModelShape) => Partial<ModelShape>]>([
    ["llama3", "positions not rescaled", plain],
    ["llama3", "another rope factor", withRope({ factor: 4 })],
    ["llama3", "another original context", withRope({ originalContext: 32 })],
    ["llama2", "positions not rescaled", plain],
    ["llama2", "another theta", withRope({ theta: 9000 })],
    ["mistral", "no window", withLayers(() => ({ slidingWindow: 0 }))],
    [
      "mistral",
      "a window one token longer",
      withLayers(({ slidingWindow }) => ({ slidingWindow: slidingWindow + 1 })),
    ],
    [
      "mistral",
      "a window one token shorter",
      withLayers(({ slidingWindow }) => ({ slidingWindow: slidingWindow - 1 })),
    ],
    ["qwen2", "another theta", withRope({ theta: 10_000 })],
    ["qwen3", "a larger norm epsilon", () => ({ normEpsilon: 0.1 })],
  ])("%s: %s", (name, _, change) => {
    expect(worstCosine(name, () => ({}))).toBeGreaterThan(0.999999);
    expect(worstCosine(name, change)).toBeLessThan(0.999);
  });
});
