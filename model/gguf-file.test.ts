import { describe, expect, test } from "bun:test";
import { type GgufInput, ggufBytes, memorySource, type TensorInput } from "../tests/support/gguf-writer.ts";
import { parseGguf } from "./gguf-file.ts";
import { ModelError } from "./model-error.ts";

const small: TensorInput = { name: "small", shape: [3], type: 0, data: new Uint8Array(12) };
const large: TensorInput = { name: "large", shape: [2, 64], type: 8, data: new Uint8Array(2 * 68) };
const input: GgufInput = {
  entries: [
    ["text", "string", "żółć"],
    ["list", "f32[]", [1, 2]],
  ],
  tensors: [small, large],
};

const parse = (bytes: Uint8Array) => parseGguf("m.gguf", memorySource(bytes));

/** Message of the ModelError that parsing throws. */
function errorOf(bytes: Uint8Array): string {
  try {
    parse(bytes);
  } catch (error) {
    expect(error).toBeInstanceOf(ModelError);
    return (error as ModelError).message;
  }
  throw new Error("parsed");
}

/** A valid file with `bytes` written `skip` bytes after the first occurrence of `after`. */
function patched(after: string, skip: number, ...bytes: number[]): Uint8Array {
  const file = Buffer.from(ggufBytes(input));
  const at = file.indexOf(after) + Buffer.byteLength(after) + skip;
  file.set(bytes, at);
  return file;
}

test("values of every type, and tensors with their places", () => {
  const entries = [
    ["a", "u8", 255],
    ["b", "i8", -128],
    ["c", "u16", 65535],
    ["d", "i16", -32768],
    ["e", "u32", 2 ** 32 - 1],
    ["f", "i32", -(2 ** 31)],
    ["g", "f32", 0.5],
    ["h", "bool", true],
    ["i", "string", "\uFEFFżółć \0"],
    ["j", "u64", 2n ** 64n - 1n],
    ["k", "i64", -3],
    ["l", "f64", 1e300],
    ["m", "string[]", ["x", ""]],
    ["n", "i64[]", [-1, 2]],
    ["o", "bool[]", [true, false]],
    ["p", "i8[]", [-1]],
    ["q", "u32[]", []],
  ] as const;
  for (const [version, alignment] of [
    [2, 8],
    [3, 32],
    [3, 4096],
  ] as const) {
    const aligned = [...entries, ["general.alignment", "u32", alignment] as const];
    const bytes = ggufBytes({ version, alignment, entries: aligned, tensors: [small, large] });
    const { metadata, tensors, fileBytes } = parse(bytes);
    expect(fileBytes).toBe(bytes.length);
    const values = [...metadata].map(([key, entry]) => [
      key,
      entry.type === "array" ? Array.from(entry.value as ArrayLike<unknown>) : entry.value,
    ]);
    expect<unknown>(values.slice(0, -1)).toEqual(
      entries.map(([key, type, value]) => [key, type === "bool[]" ? [1, 0] : value]),
    );
    const [first, second] = tensors;
    const gap = Math.ceil(12 / alignment) * alignment;
    expect(first).toMatchObject({ name: "small", dtype: "F32", shape: [3], bytes: 12, file: "m.gguf" });
    expect(first!.offset % alignment).toBe(0);
    expect(second).toMatchObject({ name: "large", dtype: "Q8_0", shape: [2, 64], bytes: 136 });
    expect(second!.offset).toBe(first!.offset + gap);
  }
});

test("a head larger than a window", () => {
  const long = Array.from({ length: 40_000 }, (_, index) => `token ${index} ${"é".repeat(index % 40)}`);
  const entries = [
    ["long", "string[]", long],
    ["numbers", "f64[]", new Float64Array(300_000).fill(1.5)],
    ["text", "string", "x".repeat(3 << 20)],
  ] as const;
  const { metadata, tensors } = parse(ggufBytes({ entries, tensors: [small] }));
  expect(metadata.get("long")!.value).toEqual(long);
  expect((metadata.get("numbers")!.value as Float64Array).every((value) => value === 1.5)).toBeTrue();
  expect((metadata.get("text")!.value as string).length).toBe(3 << 20);
  expect(tensors).toHaveLength(1);
});

describe("a file that is none", () => {
  const cases: readonly (readonly [string, Uint8Array, string])[] = [
    ["nothing", new Uint8Array(0), "has 0 bytes, too short for a GGUF file"],
    ["a short one", ggufBytes(input).subarray(0, 23), "has 23 bytes, too short"],
    [
      "something else",
      Buffer.from("PK\x03\x04".padEnd(64)),
      'begins with "PK\\u0003\\u0004", not with "GGUF"',
    ],
    [
      "a Git LFS pointer",
      Buffer.from("version https://git-lfs.github.com".padEnd(64)),
      "is a Git LFS pointer",
    ],
    ["version 1", ggufBytes({ ...input, version: 1 }), "is GGUF of version 1; versions 2 and 3 are read"],
    ["version 4", ggufBytes({ ...input, version: 4 }), "is GGUF of version 4"],
    ["a big-endian one", ggufBytes({ ...input, version: 0x0300_0000 }), "is big-endian, which is not read"],
  ];
  test.each(cases)("%s", (_, bytes, reason) => {
    expect(errorOf(bytes)).toStartWith(`m.gguf: ${reason}`);
  });
});

describe("counts and lengths", () => {
  const huge = 2n ** 63n;
  const cases: readonly (readonly [string, Uint8Array, string])[] = [
    ["tensors", ggufBytes({ ...input, tensorCount: huge }), `tensors: ${huge}; at most 131072 are possible`],
    ["entries", ggufBytes({ ...input, entryCount: huge }), `metadata entries: ${huge}; at most 65536`],
    ["a tensor too many", ggufBytes({ ...input, tensorCount: 3 }), "tensor 2: has no name"],
    ["an entry too many", ggufBytes({ ...input, entryCount: 3 }), "tensor 0: has no name"],
    ["a key of 2^63 bytes", patched("GGUF", 20, 0, 0, 0, 0, 0, 0, 0, 0x80), "metadata entry 0: bytes of key"],
    ["a text of 2^63 bytes", patched("text", 4, 0, 0, 0, 0, 0, 0, 0, 0x80), `text: bytes of text: ${huge}`],
    ["a text beyond the end", patched("text", 4, 0, 0, 1), "text: text takes bytes 48 to 65584 of a file of"],
    ["2^63 items", patched("list", 8, 0, 0, 0, 0, 0, 0, 0, 0x80), `list: items: ${huge}; at most`],
    ["items beyond the end", patched("list", 8, 0, 0, 1), "list: 65536 values of f32 takes bytes"],
  ];
  test.each(cases)("%s", (_, bytes, reason) => {
    expect(errorOf(bytes)).toStartWith(`m.gguf: ${reason}`);
  });
});

describe("values", () => {
  const cases: readonly (readonly [string, Uint8Array, string])[] = [
    ["of no type", patched("text", 0, 13), "text: the value has the type 13; types are 0 to 12"],
    ["of type 255", patched("text", 0, 255), "text: the value has the type 255"],
    ["items of no type", patched("list", 4, 99), "list: an array's items has the type 99"],
    ["an array of arrays", patched("list", 4, 9), "list: is an array of arrays"],
    ["not UTF-8", patched("text", 12, 0xff), "text: text is not valid UTF-8"],
    [
      "a truth that is neither",
      ggufBytes({ entries: [["yes", "bool", 2]], tensors: [] }),
      "yes: a truth value is neither 0 nor 1",
    ],
    [
      "a key twice",
      ggufBytes({ entries: [input.entries[0]!, input.entries[0]!], tensors: [] }),
      "text: the key appears twice",
    ],
  ];
  test.each(cases)("%s", (_, bytes, reason) => {
    expect(errorOf(bytes)).toStartWith(`m.gguf: ${reason}`);
  });

  test.each([
    ["u32", 0],
    ["u32", 1],
    ["u32", 3],
    ["u32", 0x8000_0000],
    ["u64", 32],
    ["string", "32"],
    ["u32[]", [32]],
  ])("an alignment of %s %p", (type, value) => {
    const bytes = ggufBytes({ entries: [["general.alignment", type, value]], tensors: [] });
    expect(errorOf(bytes)).toMatch(
      /^m\.gguf: general\.alignment: .*wanted: a u32 power of two from 8 to 1048576$/,
    );
  });
});

describe("tensors", () => {
  const withLarge = (change: Partial<TensorInput>): Uint8Array =>
    ggufBytes({ ...input, tensors: [small, { ...large, ...change }] });
  const cases: readonly (readonly [string, Uint8Array, string])[] = [
    ["no dimensions", withLarge({ shape: [] }), "has 0 dimensions; 1 to 4 are possible"],
    ["five dimensions", withLarge({ shape: [1, 1, 1, 1, 64] }), "has 5 dimensions"],
    ["2^32-1 dimensions", patched("large", 0, 255, 255, 255, 255), "has 4294967295 dimensions"],
    ["a dimension of 0", withLarge({ shape: [0, 64] }), "has a dimension of 0"],
    [
      "2^62 elements in a row",
      withLarge({ shape: [2n ** 62n] }),
      "a dimension: 4611686018427387904; at most",
    ],
    [
      "elements that overflow",
      withLarge({ shape: [2 ** 40, 2 ** 40] }),
      "has more elements than a file can hold",
    ],
    ["no type", withLarge({ type: 255 }), "has the type 255; supported: F32, F16, Q4_0"],
    ["a type that is not read", withLarge({ type: 34 }), "has the type 34, TQ1_0; supported: F32"],
    [
      "part of a block",
      withLarge({ shape: [2, 63] }),
      "has rows of 63, which are no whole number of Q8_0 blocks of 32",
    ],
    ["an offset between", withLarge({ offset: 36 }), "its offset 36 is not a multiple of 32"],
    ["an offset of 2^63", withLarge({ offset: 2n ** 63n }), "the offset: 9223372036854775808; at most"],
    ["an offset near 2^53", withLarge({ offset: 2n ** 53n - 32n }), "takes bytes 9007199254741"],
    ["data beyond the end", withLarge({ offset: 64 }), "takes bytes"],
    ["data that is too long", withLarge({ shape: [64, 64] }), "takes bytes"],
    ["the data of another", withLarge({ offset: 0 }), "overlaps another tensor's data"],
    ["a name twice", withLarge({ name: "small" }), "the tensor appears twice"],
    ["a name of 2 KB", withLarge({ name: "x".repeat(2048) }), "bytes of name: 2048; at most 1024"],
  ];
  test.each(cases)("%s", (_, bytes, reason) => {
    expect(errorOf(bytes)).toMatch(/^m\.gguf: (large|small|tensor 1): /);
    expect(errorOf(bytes)).toContain(reason);
  });

  test("a hole", () => {
    const far = { ...large, offset: 64 };
    const bytes = ggufBytes({
      ...input,
      tensors: [small, far, { ...small, name: "end", data: new Uint8Array(99) }],
    });
    expect(errorOf(bytes)).toContain("large: leaves a hole of");
  });

  test("bytes that belong to none", () => {
    const bytes = ggufBytes(input);
    const longer = new Uint8Array(bytes.length + 33);
    longer.set(bytes);
    expect(errorOf(longer)).toMatch(/^m\.gguf: has \d+ bytes after the last tensor that belong to none$/);
  });
});
