/**
 * Small models with every kind of layer, on the CPU, the emulated GPU and a real one. However the prompt is
 * cut, shared, batched or recomputed, its logits are the same bits.
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { NativeLibrary } from "../../gpu/native.ts";
import { openModelFolder } from "../../model/folder.ts";
import type { Quant } from "../../model/formats.ts";
import { cpuOnly, familyPrompt, writeFamily } from "../reference/families.ts";
import { sameBits } from "./compare.ts";
import { cpuLibrary, gpuEngines } from "./library.ts";
import { Rig } from "./rig.ts";

setDefaultTimeout(60_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-kinds-"));
afterAll(() => rmSync(scratch, { recursive: true }));

/** Model shapes that together have every value of every field of model/shape.ts. */
const kinds = [
  ["gemma2", "norms around, caps, GELU, windows in every other layer"],
  ["gemma3", "two ropes, norms of heads"],
  ["olmo3", "norms after, norms over all heads, yarn"],
  ["cohere2", "attention and MLP beside each other, means subtracted, layers that do not rotate"],
  ["granite", "scales"],
  ["phi3-long", "a part of each head rotated, longrope"],
  ["ministral3", "queries that grow with their position"],
  ["llama-biases", "biases everywhere"],
  ["qwen3-moe", "experts in some layers, their weights of the softmax of all logits"],
  ["gemma4", "layers of other sizes, inputs of layers, keys and values of layers before"],
  ["gemma4-moe", "experts beside an MLP, values that are keys"],
  ["qwen2-moe", "shared experts with a gate, dense layers of another width"],
  ["bailing-moe", "experts in groups chosen by sigmoids and biases, beside shared ones"],
  ["ernie-moe", "experts chosen by the softmax of all logits and biases"],
  ["hunyuan-moe", "norms of heads after their rotation"],
  [
    "llama4",
    "chunks of positions, scaled inputs of experts, norms without weights, queries that grow in layers that do not rotate",
  ],
  ["gpt-oss", "experts with biases, a clamped SwiGLU, sinks"],
  ["starcoder2", "norms with biases, an MLP without a gate"],
  ["apertus", "an activation with numbers of each layer"],
  ["deepseek-v2", "latent attention"],
  ["mistral4", "latent attention with latents of queries, which grow with their position"],
  ["gemma3n", "several residual streams, LAuReL, sparse gates"],
  ["qwen3-5", "the delta rule, gated attention"],
  ["granite4-moe", "Mamba-2 beside experts"],
  ["falcon-h1", "Mamba-2 and attention side by side"],
  ["lfm2", "short convolutions"],
  ["afmoe", "experts beside shared ones with a norm of their sum, gates of outputs in a tensor of their own"],
  ["lfm3", "a gate per head, norms around short convolutions"],
] as const;
interface Way {
  readonly device: string;
  readonly library: NativeLibrary;
  readonly compute: "f32" | "bf16";
  readonly quant: Quant;
  /** Chunk sizes. */
  readonly sizes: readonly number[];
  /** Stride of the compared positions of the prompt; the last one is compared, too. */
  readonly every: number;
}
const everySize = Array.from({ length: 20 }, (_, index) => index + 1);
const onCpu = { device: "cpu", library: cpuLibrary(), sizes: everySize, every: 1 };
const ways: readonly Way[] = [
  { ...onCpu, compute: "f32", quant: "none" },
  { ...onCpu, compute: "bf16", quant: "none" },
  { ...onCpu, compute: "bf16", quant: "int8" },
  ...gpuEngines().map(
    ({ name, library }): Way => ({
      ...{ device: name, library, compute: "bf16", quant: "none" },
      ...(name === "emu" ? { sizes: [5, 17], every: 7 } : { sizes: everySize, every: 1 }),
    }),
  ),
];

const waysOf = (name: string): readonly Way[] =>
  ways.filter(({ device }) => device === "cpu" || !cpuOnly.includes(name));

describe.each(kinds.flatMap(([name, what]) => waysOf(name).map((way) => ({ name, what, ...way }))))(
  "$name ($what) on $device in $compute, $quant",
  ({ name, device, library, compute, quant, sizes, every }) => {
    const folder = join(scratch, `${name}-${device}-${compute}-${quant}`);
    let rig: Rig;
    let whole: ReadonlyMap<number, Float32Array>;
    beforeAll(() => {
      writeFamily(name, folder);
      rig = new Rig(library, openModelFolder(folder), { compute, quant });
      const last = familyPrompt.length - 1;
      const positions = [...familyPrompt.keys()].filter((p) => p % every === 0 || p === last);
      const parts = positions.map((position) => ({
        stream: rig.stream(familyPrompt.slice(0, position + 1)),
        count: position + 1,
      }));
      whole = new Map(rig.step(parts).map(({ logits }, index) => [positions[index]!, logits]));
      for (const { stream } of parts) rig.free(stream);
    });
    afterAll(() => rig.close());

    const expectWhole = (position: number, logits: Float32Array): void => {
      const wanted = whole.get(position);
      if (wanted !== undefined && !sameBits(logits, wanted)) {
        throw new Error(`position ${position} differs from the whole prompt's`);
      }
    };

    test("chunks of any size give the same bits", () => {
      for (const size of sizes) {
        const stream = rig.stream(familyPrompt);
        rig.generate(stream, 1, size, [], expectWhole);
        rig.free(stream);
      }
    });

    test("a cached prefix, its last page copied in part, gives the same bits", () => {
      const first = rig.stream([...familyPrompt.slice(0, 37), 1, 2, 3]);
      rig.step([{ stream: first, count: 40, save: 37 }]);
      const { stream, moves } = rig.branch(first, 37, familyPrompt);
      rig.generate(stream, 1, 5, moves, expectWhole);
      rig.free(stream, 2);
      rig.free(first);
    });

    test("in the company of others, and beside one that shares its pages, the same bits", () => {
      const first = rig.stream(familyPrompt);
      const other = rig.stream(familyPrompt.toReversed());
      rig.step([
        { stream: other, count: 20 },
        { stream: first, count: 40, save: 32 },
      ]);
      const { stream: second, moves } = rig.branch(first, 32, familyPrompt);
      for (let position = 40; position < 44; position += 1) {
        const parts = [
          { stream: second, count: position === 40 ? 9 : 1 },
          { stream: other, count: 3 },
          { stream: first, count: 1 },
        ];
        const drawn = rig.step(parts, position === 40 ? moves : []);
        expectWhole(position, drawn[0]!.logits);
        expectWhole(position, drawn[2]!.logits);
      }
      rig.free(second, 2);
      rig.free(other);
      rig.free(first);
    });

    test("two that continue one prompt, beside each other, give the bits of each alone", () => {
      const last = familyPrompt.length - 1;
      const continued = [1, 2].map((salt) => [...familyPrompt, salt, 3 * salt, 5 * salt]);
      const alone = continued.map((tokens) => {
        const stream = rig.stream(tokens);
        const [drawn] = rig.step([{ stream, count: tokens.length }]);
        rig.free(stream);
        return drawn!.logits;
      });
      const first = rig.stream(familyPrompt);
      rig.step([{ stream: first, count: last, isUndrawn: true, save: last }]);
      const branches = continued.map((tokens) => rig.branch(first, last, tokens));
      const streams = branches.map(({ stream }) => stream);
      const moves = branches.flatMap((branch) => branch.moves);
      for (const { logits } of rig.step(
        streams.map((stream) => ({ stream, count: 1 })),
        moves,
      )) {
        expectWhole(last, logits);
      }
      rig.step(streams.map((stream) => ({ stream, count: 1, isUndrawn: true as const })));
      const drawn = rig.step(streams.map((stream) => ({ stream, count: 2 })));
      expect(drawn.map(({ logits }, index) => sameBits(logits, alone[index]!))).toEqual([true, true]);
      for (const stream of streams) rig.free(stream, 2);
      rig.free(first);
    });

    test("behind a step of which nothing is wanted, the same bits", () => {
      const stream = rig.stream(familyPrompt);
      rig.step([{ stream, count: 30, isUndrawn: true }]);
      rig.generate(stream, 1, 64, [], expectWhole);
      rig.free(stream);
    });

    test("computed again after its pages were lost, it draws the same tokens", () => {
      const stream = rig.stream(familyPrompt);
      const tokens = rig.generate(stream, 8, 64);
      rig.free(stream);
      const again = rig.stream([...familyPrompt, ...tokens.slice(0, 3)]);
      expect(rig.generate(again, 5, 7, [], expectWhole)).toEqual(tokens.slice(3));
      rig.free(again);
    });
  },
);
