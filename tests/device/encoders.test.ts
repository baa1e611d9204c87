/**
 * Encoders through an engine, compared with sentence-transformers: vectors of texts, and scores of pairs.
 * reference/encoders.py wrote the models and the right values.
 */
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import type { Pooling, TokenId } from "../../base/token.ts";
import { closeNativeModel, openCpuDevice, openNativeModel } from "../../gpu/native/open.ts";
import { throughLayers } from "../../model/dense.ts";
import { openModelFolder } from "../../model/folder.ts";
import { formatsOf, type Quant } from "../../model/formats.ts";
import type { SequenceId } from "../../scheduler/core.ts";
import { Engine } from "../../scheduler/engine/engine.ts";
import type { EngineReport } from "../../scheduler/messages.ts";
import { sequenceSpec } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";
import { openTemplate, openTokenizer } from "../../text/model-text.ts";
import { loadTokenizer } from "../../text/tokenizer.ts";
import {
  encoderFile,
  encoderFolder,
  encoderFolders,
  expectedOfEncoder,
  qwen3Reranker,
} from "../reference/encoders.ts";
import { cosineOf, largestDifference } from "./compare.ts";
import { cpuLibrary } from "./library.ts";

setDefaultTimeout(60_000); // milliseconds, for a busy machine

const names = encoderFolders().map(({ name }) => name);
const expectedOf = expectedOfEncoder;
const cpu = cpuLibrary();

interface Way {
  readonly compute: "f32" | "bf16";
  readonly quant?: Quant;
  /** Tokens of a step at most. */
  readonly stepTokens?: number;
}

interface Text {
  readonly tokens: readonly TokenId[];
  readonly secondAt?: number;
}

/** Returns the pooled states of texts from one engine. */
function statesOf(path: string, pooling: Pooling, texts: readonly Text[], way: Way): Float32Array[] {
  const folder = openModelFolder(path);
  const { compute, quant = "none", stepTokens = 1024 } = way;
  const formats = formatsOf(folder.tensors, folder.config.shape.layers.length, quant, compute);
  const options = { compute, formats, isa: "auto", threads: 1, contextMax: null } as const;
  const model = openNativeModel(cpu, folder, options, () => undefined);
  const limits = {
    ...{ threads: 2, pages: 128, pageTokens: 16, stepTokensMax: stepTokens, stepChunksMax: 16 },
    ...{ stepHiddenMax: stepTokens, topLogprobsMax: 0 },
  };
  const device = openCpuDevice(cpu, model, limits);
  const states: Float32Array[] = [];
  let load: EngineReport["load"] | null = null;
  const engine = new Engine(device, new ManualClock(), { integrity: "always" }, (report) => {
    const { finished } = report;
    load = report.load;
    for (const { sequence, finish } of finished) {
      if (finish.kind !== "pooled") throw new Error(`a text ended as ${finish.kind}`);
      states[sequence] = finish.hidden;
    }
  });
  texts.forEach(({ tokens, ...rest }, id) => {
    const isWhole = folder.config.shape.encoder !== undefined ? { isWhole: true } : {};
    const spec = { ...sequenceSpec([...tokens], 1, { pooling }), ...isWhole, ...rest };
    engine.receive({ kind: "submit", sequence: { ...spec, id: id as SequenceId } });
  });
  engine.run();
  while (device.inFlight) {
    device.wait();
    device.deliver();
  }
  if (folder.config.shape.encoder !== undefined)
    expect(load).toMatchObject({ pagesFree: limits.pages, pagesCached: 0 });
  device.close();
  closeNativeModel(cpu, model);
  return states;
}

function unit(state: Float32Array): Float32Array {
  const length = Math.hypot(...state);
  return state.map((value) => value / length);
}

function vectorsOf(name: string, way: Way, path = encoderFolder(name)): Float32Array[] {
  const rule = openModelFolder(path).embedding;
  if ("refusal" in rule) throw new Error(rule.refusal);
  const { pooling, layers = [] } = rule;
  const texts = expectedOf(name).tokens.map((tokens) => ({ tokens }));
  return statesOf(path, pooling, texts, way).map((state) => unit(throughLayers(layers, state)));
}

const embedders = names.filter((name) => expectedOf(name).vectors !== undefined);
const scorers = names.filter((name) => expectedOf(name).scores !== undefined);

describe("tokens of texts and pairs are those of tokenizers", () => {
  test.each(names)("%s", (name) => {
    const tokenizer = loadTokenizer(encoderFolder(name));
    const { texts, tokens, pairs = [], pairTokens = [] } = expectedOf(name);
    texts.forEach((text, i) => {
      expect(tokenizer.encode(text, { addSpecialTokens: true, parseControlText: true })).toEqual(tokens[i]!);
    });
    pairs.forEach(([first, second], i) => {
      const [a, b] = [first, second].map((text) => tokenizer.encode(text, { addSpecialTokens: false }));
      expect(tokenizer.pair(a!, b!).tokens).toEqual(pairTokens[i]!);
    });
  });
});

describe("vectors", () => {
  test.each(embedders)("of %s in f32 are those of sentence-transformers", (name) => {
    const { vectors } = expectedOf(name);
    vectorsOf(name, { compute: "f32" }).forEach((vector, i) => {
      const expected = Float32Array.from(vectors![i]!);
      expect(largestDifference(vector, expected)).toBeLessThan(1e-4);
      expect(cosineOf(vector, expected)).toBeGreaterThan(0.9999);
    });
  });

  test("with a prompt of the model are those of sentence-transformers", () => {
    const path = encoderFolder("roberta-cls");
    const rule = openModelFolder(path).embedding;
    const prompt = "prompts" in rule ? rule.prompts!.byName.query! : "";
    const { texts, query } = expectedOf("roberta-cls");
    const tokens = loadTokenizer(path).encode(prompt + texts[0], { addSpecialTokens: true });
    const [state] = statesOf(path, "first", [{ tokens }], { compute: "f32" });
    expect(cosineOf(unit(state!), Float32Array.from(query!))).toBeGreaterThan(0.9999);
  });

  test.each(
    embedders.flatMap((name) => [
      [name, { compute: "bf16", quant: "none" }, 0.999],
      [name, { compute: "bf16", quant: "int8" }, 0.99],
    ]) as [string, Way, number][],
  )("of %s by %p point the same way", (name, way, least) => {
    const { vectors } = expectedOf(name);
    vectorsOf(name, way).forEach((vector, i) => {
      expect(cosineOf(vector, Float32Array.from(vectors![i]!))).toBeGreaterThan(least);
    });
  });

  test("have the same bits whatever runs beside a text", () => {
    const [name] = embedders;
    const together = vectorsOf(name!, { compute: "f32" });
    expect(vectorsOf(name!, { compute: "f32", stepTokens: 160 })).toEqual(together);
  });
});

describe("a GGUF file of llama.cpp's converter", () => {
  const files = embedders.flatMap((name): [string, string][] => {
    const file = encoderFile(name);
    return file === null ? [] : [[name, file]];
  });

  // The format has no place for another activation, nor for a bias or an activation behind the pooling.
  test.each(files.filter(([name]) => !["bert-cls-cased", "embedding-gemma"].includes(name)))(
    "%s gives the same vectors",
    (name, file) => {
      const { vectors } = expectedOf(name);
      vectorsOf(name, { compute: "f32" }, file).forEach((vector, i) => {
        expect(largestDifference(vector, Float32Array.from(vectors![i]!))).toBeLessThan(1e-4);
      });
    },
  );

  test("embedding-gemma gives the same states, and has its layers", () => {
    const [, file] = files.find(([name]) => name === "embedding-gemma")!;
    const texts = expectedOf("embedding-gemma").tokens.map((tokens) => ({ tokens }));
    const [of, other] = [encoderFolder("embedding-gemma"), file].map((path) =>
      statesOf(path, "mean", texts, { compute: "f32" }),
    );
    of!.forEach((state, i) => {
      const largest = largestDifference(state, new Float32Array(state.length));
      // The converter adds 1 to the norms' weights in f16.
      expect(largestDifference(state, other![i]!) / largest).toBeLessThan(2e-3);
    });
    const rule = openModelFolder(file).embedding;
    expect("layers" in rule && rule.layers!.map(({ outputs }) => outputs)).toEqual([40, 24]);
  });

  test.each(files.filter(([name]) => !/gemma|modern/.test(name)))(
    "%s makes the same tokens",
    (name, file) => {
      const tokenizer = openTokenizer(file);
      const { texts, tokens } = expectedOf(name);
      texts.forEach((text, i) => {
        expect(tokenizer.encode(text, { addSpecialTokens: true, parseControlText: true })).toEqual(
          tokens[i]!,
        );
      });
      const [first, second] = [[7, 8], [9]];
      const folder = loadTokenizer(encoderFolder(name));
      expect(tokenizer.pair(first!, second!)).toEqual(folder.pair(first!, second!));
    },
  );
});

/** Scores of tokenised pairs by the head of a model. */
function scoresOf(path: string, texts: readonly Text[]): number[] {
  const head = openModelFolder(path).score;
  if ("refusal" in head) throw new Error(head.refusal);
  const { weights, bias = 0, pooling = "last", layers = [] } = head;
  return statesOf(path, pooling, texts, { compute: "f32" }).map((state) => {
    const product = throughLayers(layers, state).reduce((sum, x, at) => sum + x * weights[at]!, bias);
    return 1 / (1 + Math.exp(-product));
  });
}

describe("scores", () => {
  const pairsOf = (name: string): readonly Text[] => {
    const tokenizer = loadTokenizer(encoderFolder(name));
    return expectedOf(name).pairs!.map(([first, second]) => {
      const [a, b] = [first, second].map((text) => tokenizer.encode(text, { addSpecialTokens: false }));
      return tokenizer.pair(a!, b!);
    });
  };

  test.each(scorers)("of %s are those of a CrossEncoder", (name) => {
    const { scores } = expectedOf(name);
    scoresOf(encoderFolder(name), pairsOf(name)).forEach((score, i) => {
      expect(score).toBeCloseTo(scores![i]!, 5);
    });
  });

  test.each(["xlm-roberta-score", "modern-bert-score"])("of %s's GGUF file are the same", (name) => {
    const { scores } = expectedOf(name);
    scoresOf(encoderFile(name)!, pairsOf(name)).forEach((score, i) => {
      expect(score).toBeCloseTo(scores![i]!, 5);
    });
  });

  test("of BERT's GGUF file are refused: the converter leaves a layer out", () => {
    expect(openModelFolder(encoderFile("bert-score")!).score).toEqual({
      refusal: "its file lacks cls.weight, the layer before cls.output",
    });
  });

  test("of a GGUF file of Qwen3-Reranker's kind are transformers' probabilities of yes beside no", () => {
    const { file, pairs, tokens, scores } = qwen3Reranker();
    const tokenizer = openTokenizer(file);
    const template = openTemplate(file, tokenizer)!;
    const texts = pairs.map(([query, document]) => {
      const messages = Object.entries({ query, document }).map(([role, content]) => ({ role, content }));
      return { tokens: tokenizer.encodeRendered(template.write(messages, { addGenerationPrompt: true })) };
    });
    expect(texts.map((text) => text.tokens)).toEqual([...tokens]);
    expect(openModelFolder(file).config.isHeadless).toBe(true);
    scoresOf(file, texts).forEach((score, i) => {
      expect(score).toBeCloseTo(scores[i]!, 5);
    });
  });
});
