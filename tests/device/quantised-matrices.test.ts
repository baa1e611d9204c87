/**
 * Matrices that other programs quantised (tests/reference/quantised): their products are those of the numbers
 * that the programs' own packages read from the same tensors.
 */
import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openModelFolder } from "../../model/folder.ts";
import { formatName, formatsOf } from "../../model/formats.ts";
import { cpuLibrary } from "./library.ts";
import { Rig } from "./rig.ts";

setDefaultTimeout(60_000);

const library = cpuLibrary();
const scratch = mkdtempSync(join(tmpdir(), "bunting-matrices-"));
afterAll(() => rmSync(scratch, { recursive: true }));

interface Stored {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data: string;
}
interface Case {
  readonly config: Record<string, unknown>;
  /** Tensors by their names after the matrix's, without ".weight". */
  readonly tensors: Readonly<Record<string, Stored>>;
  /** Products with eight rows of `inputs`, each divided by its root mean square. */
  readonly products: readonly (readonly number[])[];
}
const file = join(import.meta.dir, "../reference/quantised/matrices.json");
const cases = JSON.parse(readFileSync(file, "utf8")) as Record<string, Case>;

const cols = 256;
const rowsMax = 32;
const inputs = Float32Array.from(
  { length: rowsMax * cols },
  (_, at) => (((Math.floor(at / cols) * 131 + (at % cols) * 17) % 29) - 14) / 16,
);

/** Writes a model whose only layer adds nothing, so that its logits are products of the matrix and the inputs. */
function writeModel(name: string, { config, tensors, products }: Case): string {
  const rows = products[0]!.length;
  const dir = join(scratch, name);
  mkdirSync(dir);
  const sizes = {
    ...{ architectures: ["LlamaForCausalLM"], hidden_size: cols, intermediate_size: 64, vocab_size: rows },
    ...{ num_attention_heads: 4, num_key_value_heads: 4, num_hidden_layers: 1, max_position_embeddings: 64 },
    ...{ rms_norm_eps: 1e-6, tie_word_embeddings: false, hidden_act: "silu" },
  };
  writeFileSync(join(dir, "config.json"), JSON.stringify({ ...sizes, quantization_config: config }));
  const plain = (values: Float32Array, ...shape: number[]): Stored => {
    return { dtype: "F32", shape, data: Buffer.from(values.buffer).toString("base64") };
  };
  const zeros = (...shape: [number, number]): Stored =>
    plain(new Float32Array(shape[0] * shape[1]), ...shape);
  const ones = plain(new Float32Array(cols).fill(1), cols);
  const all: Record<string, Stored> = {
    "model.embed_tokens.weight": plain(inputs.slice(0, rows * cols), rows, cols),
    "model.norm.weight": ones,
    "model.layers.0.input_layernorm.weight": ones,
    "model.layers.0.post_attention_layernorm.weight": ones,
    "model.layers.0.mlp.gate_proj.weight": zeros(64, cols),
    "model.layers.0.mlp.up_proj.weight": zeros(64, cols),
    "model.layers.0.mlp.down_proj.weight": zeros(cols, 64),
  };
  for (const part of ["q", "k", "v", "o"])
    all[`model.layers.0.self_attn.${part}_proj.weight`] = zeros(cols, cols);
  for (const [part, tensor] of Object.entries(tensors)) all[`lm_head.${part}`] = tensor;
  const header: Record<string, unknown> = {};
  const data: Buffer[] = [];
  let end = 0;
  for (const [tensor, { dtype, shape, data: text }] of Object.entries(all)) {
    const bytes = Buffer.from(text, "base64");
    header[tensor] = { dtype, shape, data_offsets: [end, end + bytes.length] };
    data.push(bytes);
    end += bytes.length;
  }
  const json = Buffer.from(JSON.stringify(header));
  const start = Buffer.alloc(8);
  start.writeBigUint64LE(BigInt(json.length));
  writeFileSync(join(dir, "model.safetensors"), Buffer.concat([start, json, ...data]));
  return dir;
}

/**
 * Blocks that the matrix becomes, and the share of the products' root mean square by which they may differ.
 * Integers and levels that stay as they are have scales rounded to f16, a share of 2^-11 at most.
 */
const expected: Readonly<Record<string, readonly [string, number]>> = {
  nf4: ["q8_0", 0.01],
  "nf4, nested scales": ["q8_0", 0.01],
  fp4: ["q8_0", 0.01],
  "fp4, nested scales": ["q8_0", 0.01],
  int8: ["q8_0", 0.001],
  "compressed-tensors, NVFP4": ["NVFP4", 0.001],
  "ModelOpt, NVFP4": ["NVFP4", 0.001],
  "AutoRound, zeros less 1": ["Q4_1", 0.001],
  "AutoRound, zeros as they are": ["Q4_1", 0.001],
  "AutoRound, symmetric": ["int4", 0.001],
};

test("every matrix has an expectation", () => {
  expect(Object.keys(cases)).toEqual(Object.keys(expected));
});

test.each(Object.entries(cases))("%s", (name, matrix) => {
  const folder = openModelFolder(writeModel(name, matrix));
  const [format, share] = expected[name]!;
  expect(formatName(formatsOf(folder.tensors, 1, "auto", "bf16")[1]!)).toBe(format);
  const rig = new Rig(library, folder, { compute: "f32", quant: "none" });
  const got = matrix.products.map((_, token) => {
    const stream = rig.stream([token]);
    const [row] = rig.step([{ stream, count: 1 }]);
    rig.free(stream);
    return [...row!.logits];
  });
  rig.close();
  const errors = got.flatMap((row, t) => row.map((value, n) => (value - matrix.products[t]![n]!) ** 2));
  const squares = matrix.products.flat().map((value) => value ** 2);
  const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
  expect(Math.sqrt(sum(errors) / sum(squares))).toBeLessThan(share);
});
