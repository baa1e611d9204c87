import { describe, expect, test } from "bun:test";
import { type FormatTensor, formatsOf, isRounded, type Quant, widenedNote } from "./formats.ts";
import { TensorKind } from "./tensor-kinds.ts";

const bf16 = 2;
const q4 = 16;
const q8 = 20;
const q6 = 26;

/**
 * Tensors of a model of two layers. `changes` are stored types by kind; for kinds of layers they apply to
 * layer 1 only.
 */
function tensorsOf(dtype: number, changes: Readonly<Record<number, number>> = {}): FormatTensor[] {
  const { embed, finalNorm, lmHead, attentionNorm, routerBias } = TensorKind;
  const inLayers = Object.values(TensorKind).filter((kind) => kind >= attentionNorm && kind <= routerBias);
  const whole = [embed, finalNorm, lmHead].map((tensor) => ({ tensor, layer: 0, dtype }));
  const layers = [0, 1].flatMap((layer) => inLayers.map((tensor) => ({ tensor, layer, dtype })));
  return [...whole, ...layers].map((tensor) => ({
    ...tensor,
    dtype: (tensor.layer === 1 || tensor.tensor < 16 ? changes[tensor.tensor] : undefined) ?? tensor.dtype,
  }));
}

/**
 * Formats of the MLP beside experts, which these models lack. They have no layer inputs either, whose table
 * is last.
 */
const none = [0, 0];

describe("of a file in bf16", () => {
  const tensors = tensorsOf(bf16);
  test.each([
    ["auto", [0, 0], [0, 0, 0, 0, 0]],
    ["none", [0, 0], [0, 0, 0, 0, 0]],
    ["int8", [1, 1], [1, 1, 1, 1, 1]],
    ["q8_0", [5, 5], [5, 5, 5, 5, 5]],
    ["int6", [4, 4], [4, 4, 4, 4, 4]],
    ["int4", [4, 4], [2, 2, 2, 2, 2]],
    ["fp8", [0, 0], [3, 3, 3, 3, 3]],
  ] as const)("%s", (quant, vocabulary, layer) => {
    expect(formatsOf(tensors, 2, quant, "bf16")).toEqual([
      ...vocabulary,
      ...layer,
      ...none,
      ...layer,
      ...none,
      0,
    ]);
    const inF32 = formatsOf(tensors, 2, quant, "f32");
    expect(inF32).toEqual([...vocabulary, ...layer, ...none, ...layer, ...none, 0]);
  });
});

test.each([
  ["auto", bf16, 0],
  ["int8", bf16, 1],
  ["q8_0", bf16, 5],
  ["int6", bf16, 1],
  ["int4", bf16, 1],
  ["fp8", bf16, 0],
  ["int6", q8, 5],
  ["int4", q8, 5],
  ["int4", q6, 26],
  ["int4", q4, 2],
] as const)("%s of an embedding in type %d that is the projection too", (quant, dtype, format) => {
  const tensors = tensorsOf(bf16, { [TensorKind.embed]: dtype });
  const tied = tensors.filter(({ tensor }) => tensor !== TensorKind.lmHead);
  expect(formatsOf(tied, 2, quant, "bf16").slice(0, 2)).toEqual([format, 0]);
});

describe("of a GGUF file in Q4_0 whose vocabulary is Q6_K and last layer is mixed", () => {
  const tensors = tensorsOf(q4, {
    [TensorKind.embed]: q8,
    [TensorKind.lmHead]: q6,
    [TensorKind.v]: q8,
    [TensorKind.down]: q8,
    [TensorKind.o]: q6,
  });
  test.each([
    ["auto", [5, 26], [2, 2, 2, 2, 2], [2, 5, 26, 2, 5]],
    ["none", [0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
    ["int8", [5, 26], [2, 2, 2, 2, 2], [2, 5, 26, 2, 5]],
    ["q8_0", [5, 26], [2, 2, 2, 2, 2], [2, 5, 26, 2, 5]],
    ["int6", [4, 26], [2, 2, 2, 2, 2], [2, 4, 26, 2, 4]],
    ["int4", [4, 26], [2, 2, 2, 2, 2], [2, 2, 2, 2, 2]],
    ["fp8", [0, 0], [3, 3, 3, 3, 3], [3, 3, 3, 3, 3]],
  ] as const)("%s", (quant, vocabulary, first, last) => {
    expect(formatsOf(tensors, 2, quant, "bf16")).toEqual([
      ...vocabulary,
      ...first,
      ...none,
      ...last,
      ...none,
      0,
    ]);
  });

  test("auto, in f32: nothing stays in blocks", () => {
    expect(formatsOf(tensors, 2, "auto", "f32").every((format) => format === 0)).toBeTrue();
  });

  test("on a GPU Q6_K becomes int8, and V is as Q and K", () => {
    const formats = formatsOf(tensors, 2, "auto", "bf16", "gpu");
    expect(formats).toEqual([...[5, 1], ...[2, 2, 2, 2, 2], ...none, ...[5, 5, 1, 2, 5], ...none, 0]);
    expect(widenedNote(tensors, formats, "bf16")).toStartWith("2 matrices in Q6_K become int8");
  });

  test("tensors of two types that are one matrix become int8, where one is no part of the other", () => {
    const mixed = tensorsOf(q4, { [TensorKind.k]: q6 });
    const formats = formatsOf(mixed, 2, "auto", "bf16");
    expect(formats).toEqual([...[2, 2], ...[2, 2, 2, 2, 2], ...none, ...[1, 2, 2, 2, 2], ...none, 0]);
    expect(widenedNote(mixed, formats, "bf16")).toStartWith("2 matrices in Q4_0 and Q6_K become int8");
  });

  test("what becomes plain is told, and by which type", () => {
    expect(widenedNote(tensors, formatsOf(tensors, 2, "auto", "bf16"), "bf16")).toBeNull();
    expect(widenedNote(tensors, formatsOf(tensors, 2, "none", "bf16"), "bf16")).toStartWith(
      "16 matrices in Q8_0 and Q6_K and Q4_0 become bf16",
    );
    expect(widenedNote(tensors, formatsOf(tensors, 2, "int8", "bf16"), "bf16")).toBeNull();
  });
});

describe("of a GGUF file in rows of code books", () => {
  const [iq2Xs, iq3S] = [31, 34];
  const tensors = tensorsOf(iq2Xs, {
    [TensorKind.embed]: q6,
    [TensorKind.lmHead]: q6,
    [TensorKind.k]: iq3S,
    [TensorKind.down]: iq3S,
    [TensorKind.o]: q4,
    [TensorKind.gate]: q6,
  });
  test("they become int4 or int6, beside other blocks int8, which is told", () => {
    const formats = formatsOf(tensors, 2, "auto", "bf16");
    expect(formats).toEqual([...[26, 26], ...[2, 2, 2, 2, 2], ...none, ...[4, 2, 2, 1, 4], ...none, 0]);
    const note =
      "2 matrices in Q6_K and IQ2_XS become int8, 3 matrices in IQ2_XS and IQ3_S become int6, 8 matrices in IQ2_XS become int4";
    expect(widenedNote(tensors, formats, "bf16")).toStartWith(note);
    expect(formatsOf(tensors, 2, "auto", "bf16", "gpu")[2]).toBe(2);
  });
  test("nothing is told of what was asked for in fewer bits", () => {
    const inQ4 = tensorsOf(q6);
    expect(widenedNote(inQ4, formatsOf(inQ4, 2, "int4", "bf16"), "bf16")).toBeNull();
  });
});

test.each([
  ["of one type", [q4, q4], 2],
  ["in blocks of two types", [q4, q8], 5],
  ["in blocks of others", [q4, q6], 1],
  ["of which one is plain", [q4, bf16], 0],
] as const)("experts of a layer %s are one matrix", (_, dtypes, format) => {
  const experts = dtypes.map((dtype): FormatTensor => ({ tensor: TensorKind.down, layer: 0, dtype }));
  expect(formatsOf(experts, 1, "auto", "bf16")[6]).toBe(format);
});

test("matrices beside experts and the table of layers' inputs have formats of their own", () => {
  const tensors = [
    { tensor: TensorKind.layerEmbed, layer: 0, dtype: q6 },
    { tensor: TensorKind.besideGate, layer: 0, dtype: q4 },
    { tensor: TensorKind.besideUp, layer: 0, dtype: q4 },
    { tensor: TensorKind.besideDown, layer: 0, dtype: q8 },
  ];
  expect(formatsOf(tensors, 1, "auto", "bf16")).toEqual([...[0, 0], ...[0, 0, 0, 0, 0], ...[2, 5], 26]);
  expect(formatsOf(tensors, 1, "int4", "bf16")).toEqual([...[0, 0], ...[0, 0, 0, 0, 0], ...[2, 2], 26]);
});

test("keys that are values, and queries alone, are one matrix of what there is", () => {
  const queries = [{ tensor: TensorKind.q, layer: 0, dtype: q4 }];
  const keys = [...queries, { tensor: TensorKind.k, layer: 0, dtype: q4 }];
  for (const tensors of [queries, keys]) {
    expect(formatsOf(tensors, 1, "auto", "bf16", "cpu").slice(2, 4)).toEqual([2, 0]);
    expect(formatsOf(tensors, 1, "auto", "bf16", "gpu").slice(2, 4)).toEqual([2, 2]);
  }
});

describe("loading computes the numbers of a matrix", () => {
  const isSo = (tensors: readonly FormatTensor[], quant: Quant): boolean =>
    isRounded(tensors, formatsOf(tensors, 2, quant, "bf16"));
  const q4k = 24;
  const iq1 = 30;

  test("if it rounds plain numbers, unpacks blocks, or changes their format", () => {
    expect(isSo(tensorsOf(bf16), "int8")).toBeTrue();
    expect(isSo(tensorsOf(q4k), "none")).toBeTrue();
    expect(isSo(tensorsOf(q4k, { [TensorKind.gate]: q6 }), "auto")).toBeTrue();
    expect(isSo(tensorsOf(iq1), "auto")).toBeTrue();
    const quantised = { ...tensorsOf(q4).at(-2)!, tensor: TensorKind.down, quantised: {} };
    expect(isRounded([quantised], formatsOf([quantised], 2, "auto", "bf16"))).toBeTrue();
  });

  test("but not if it only moves them", () => {
    expect(isSo(tensorsOf(bf16), "auto")).toBeFalse();
    expect(isSo(tensorsOf(q4), "auto")).toBeFalse();
    expect(isSo(tensorsOf(q4k, { [TensorKind.v]: q6, [TensorKind.down]: q6 }), "auto")).toBeFalse();
  });
});

test("matrices of recurrent layers have formats behind all others", () => {
  const { stateQ, stateK, stateV, stateZ, stateO, o } = TensorKind;
  const tensors = [
    { tensor: o, layer: 0, dtype: q4 },
    ...[stateQ, stateK, stateV].map((tensor) => ({ tensor, layer: 1, dtype: q6 })),
    { tensor: stateZ, layer: 1, dtype: q4 },
    { tensor: stateO, layer: 1, dtype: q8 },
  ];
  const others = [...[0, 0], ...[0, 0, 2, 0, 0, 0, 0], ...[0, 0, 0, 0, 0, 0, 0], 0];
  const formats = formatsOf(tensors, 2, "auto", "bf16");
  expect(formats).toEqual([...others, ...[0, 0, 0], ...[q6, 2, 5]]);
  expect(widenedNote(tensors, formats, "bf16")).toBeNull();
  expect(isRounded(tensors, formats)).toBeFalse();
  expect(isRounded(tensors, formatsOf(tensors, 2, "int4", "bf16"))).toBeTrue();
});
