import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ModelError } from "./model-error.ts";
import { headerLength, parseHeader, readSafetensors, readStoredTensors } from "./safetensors.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-safetensors-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const encode = (text: string) => new TextEncoder().encode(text);
const entry = (dtype: unknown, shape: unknown, offsets: unknown) => ({ dtype, shape, data_offsets: offsets });

/** Bytes of a file: length, header, zeros as data. */
function fileOf(header: unknown, dataBytes: number, statedLength?: bigint): Uint8Array {
  const json = encode(typeof header === "string" ? header : JSON.stringify(header));
  const bytes = new Uint8Array(8 + json.length + dataBytes);
  new DataView(bytes.buffer).setBigUint64(0, statedLength ?? BigInt(json.length), true);
  bytes.set(json, 8);
  return bytes;
}

function messageOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    expect(error).toBeInstanceOf(ModelError);
    return (error as ModelError).message;
  }
  throw new Error("no error");
}

const parse = (header: unknown, dataBytes: number) => {
  const json = encode(typeof header === "string" ? header : JSON.stringify(header));
  return parseHeader("w", json, 8 + json.length + dataBytes);
};

describe("a good header", () => {
  test("gives ranges counted from the start of the file, in the order of the data", () => {
    const header = {
      __metadata__: { format: "pt" },
      b: entry("BF16", [2, 3], [4, 16]),
      a: entry("F32", [1], [0, 4]),
      scalar: entry("U8", [], [16, 17]),
      empty: entry("F16", [0, 5], [17, 17]),
    };
    const start = 8 + JSON.stringify(header).length;
    expect(parse(header, 17)).toEqual([
      { name: "a", file: "w", dtype: "F32", shape: [1], offset: start, bytes: 4 },
      { name: "b", file: "w", dtype: "BF16", shape: [2, 3], offset: start + 4, bytes: 12 },
      { name: "scalar", file: "w", dtype: "U8", shape: [], offset: start + 16, bytes: 1 },
      { name: "empty", file: "w", dtype: "F16", shape: [0, 5], offset: start + 17, bytes: 0 },
    ]);
  });

  test("may be padded with spaces, and no name is special to JavaScript", () => {
    const text = `{"__proto__":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   `;
    expect(parse(text, 1).map((tensor) => tensor.name)).toEqual(["__proto__"]);
  });
});

describe("a bad header is refused, naming tensor and reason", () => {
  test.each<[string, unknown, number, string]>([
    ["not JSON", "{", 0, "w: is not valid JSON"],
    ["not UTF-8", "\uD800{", 0, "w: is not valid JSON"],
    ["a list", "[]", 0, "w: is not a JSON object"],
    ["deep nesting", `{"a":${"[".repeat(200_000)}${"]".repeat(200_000)}}`, 0, "w: nests more than 64 levels"],
    ["repeated tensor", `{"a":{},"b":{},"a":{}}`, 0, "w: a: the key appears twice"],
    ["repeated, spelled differently", `{"a":{},"\\u0061" :{}}`, 0, "w: a: the key appears twice"],
    ["repeated field", `{"a":{"dtype":"U8","dtype":"F32"}}`, 0, "w: dtype: the key appears twice"],
    ["no entry", { a: null }, 0, "w: a: is null"],
    ["unknown dtype", { a: entry("F4", [2], [0, 1]) }, 1, 'w: a: unknown dtype "F4"'],
    ["inherited dtype", { a: entry("toString", [2], [0, 1]) }, 1, 'w: a: unknown dtype "toString"'],
    ["no dtype", { a: { shape: [1], data_offsets: [0, 1] } }, 1, "w: a: unknown dtype missing"],
    ["negative size", { a: entry("U8", [-1], [0, 1]) }, 1, "w: a: shape [-1]"],
    ["fractional size", { a: entry("U8", [0.5], [0, 1]) }, 1, "w: a: shape [0.5]"],
    ["text as size", { a: entry("U8", ["1"], [0, 1]) }, 1, 'w: a: shape ["1"]'],
    ["2^62", { a: entry("U8", [2 ** 62], [0, 1]) }, 1, "w: a: shape [4611686018427388000]"],
    ["many dimensions", { a: entry("U8", Array(9).fill(1), [0, 1]) }, 1, "w: a: shape [1,1"],
    [
      "product overflow",
      { a: entry("U8", [2 ** 40, 2 ** 40], [0, 1]) },
      1,
      "more elements than a file can hold",
    ],
    [
      "overflow to zero",
      { a: entry("U8", [2 ** 52, 2 ** 52, 0], [0, 0]) },
      0,
      "more elements than a file can hold",
    ],
    [
      "too short for its shape",
      { a: entry("F32", [2], [0, 4]) },
      4,
      "takes 8 bytes, data_offsets [0,4] give 4",
    ],
    ["beyond the end", { a: entry("U8", [4], [0, 4]) }, 3, "lie outside the file's 3 bytes of data"],
    ["backwards", { a: entry("U8", [1], [1, 0]) }, 1, "w: a: data_offsets [1,0] lie outside"],
    [
      "negative offset",
      { a: entry("U8", [1], [-1, 0]) },
      1,
      "w: a: data_offsets [-1,0] are not two whole numbers",
    ],
    ["one offset", { a: entry("U8", [1], [0]) }, 1, "w: a: data_offsets [0] are not two whole numbers"],
    ["overlap", { a: entry("U8", [2], [0, 2]), b: entry("U8", [2], [1, 3]) }, 3, "w: b: overlaps"],
    ["twice the same", { a: entry("U8", [2], [0, 2]), b: entry("U8", [2], [0, 2]) }, 2, "w: b: overlaps"],
    [
      "hole",
      { a: entry("U8", [1], [0, 1]), b: entry("U8", [1], [2, 3]) },
      3,
      "w: b: leaves a hole of 1 bytes",
    ],
    ["hole at the start", { a: entry("U8", [1], [1, 2]) }, 2, "w: a: leaves a hole of 1 bytes"],
    ["rest", { a: entry("U8", [1], [0, 1]) }, 3, "w: has 2 bytes after the last tensor"],
  ])("%s", (_, header, dataBytes, message) => {
    expect(messageOf(() => parse(header, dataBytes))).toContain(message);
  });

  test("lengths that no header can have", () => {
    const file = join(scratch, "bad.safetensors");
    const read = (bytes: Uint8Array): string => {
      writeFileSync(file, bytes);
      return messageOf(() => readSafetensors(file));
    };
    const good = fileOf({ a: entry("U8", [2], [0, 2]) }, 2);
    expect(read(new Uint8Array(0))).toContain("has 0 bytes, too short");
    expect(read(good.slice(0, 7))).toContain("has 7 bytes, too short");
    expect(read(good.slice(0, 20))).toContain("in a file of 20");
    expect(read(good.slice(0, -1))).toContain(
      "a: data_offsets [0,2] lie outside the file's 1 bytes of data; is the file complete?",
    );
    expect(read(fileOf("{}", 0, 2n ** 64n - 1n))).toContain("states a length of 18446744073709551615 bytes");
    expect(read(new TextEncoder().encode("version https://git-lfs.github.com/spec/v1\n"))).toContain(
      "Git LFS",
    );
    expect(read(fileOf("{}", 0, 2n ** 63n))).toContain("at most 100000000");
    expect(read(fileOf("{}", 0, 3n))).toContain("states a length of 3 bytes in a file of 10");
    expect(headerLength("w", fileOf("{}", 5), 15)).toBe(2);
  });

  test("what is not a file", () => {
    expect(messageOf(() => readSafetensors(scratch))).toContain("is not a regular file");
    expect(messageOf(() => readSafetensors(join(scratch, "none")))).toContain("does not exist");
    const pipe = join(scratch, "pipe");
    expect(Bun.spawnSync(["mkfifo", pipe]).exitCode).toBe(0);
    expect(messageOf(() => readSafetensors(pipe))).toContain("is not a regular file");
  });
});

describe("shards", () => {
  const folder = (files: Record<string, Uint8Array | object>): string => {
    const dir = mkdtempSync(join(scratch, "shards-"));
    for (const [name, content] of Object.entries(files)) {
      writeFileSync(join(dir, name), content instanceof Uint8Array ? content : JSON.stringify(content));
    }
    return dir;
  };
  const one = (name: string) => fileOf({ [name]: entry("U8", [2], [0, 2]) }, 2);
  const index = (weight_map: unknown) => ({ "model.safetensors.index.json": { weight_map } });

  test("are joined, and their sizes added", () => {
    const map = { a: "x-1.safetensors", b: "x-2.safetensors" };
    const dir = folder({ "x-1.safetensors": one("a"), "x-2.safetensors": one("b"), ...index(map) });
    const { tensors, filesBytes } = readStoredTensors(dir);
    expect([...tensors.keys()]).toEqual(["a", "b"]);
    expect(tensors.get("b")?.file).toBe(join(dir, "x-2.safetensors"));
    expect(filesBytes).toBe(one("a").length * 2);
  });

  test.each([
    ["../x.safetensors"],
    ["/etc/passwd"],
    ["sub/x.safetensors"],
    ["sub\\x.safetensors"],
    ["..safetensors"],
    [".x.safetensors"],
    ["x.bin"],
    ["x.safetensors\u0000"],
    ["x\n.safetensors"],
    [""],
    [3],
    [null],
  ])("the shard name %j is refused", (name) => {
    const message = messageOf(() => readStoredTensors(folder(index({ a: name }))));
    expect(message).toContain("model.safetensors.index.json: a: ");
    expect(message).toContain("is not the plain name");
  });

  test("must have what the index says, once", () => {
    const both = { "x-1.safetensors": one("a"), "x-2.safetensors": one("a") };
    const twice = folder({ ...both, ...index({ a: "x-1.safetensors", b: "x-2.safetensors" }) });
    expect(messageOf(() => readStoredTensors(twice))).toContain("x-2.safetensors: a: is in ");
    const missing = folder({
      "x-1.safetensors": one("a"),
      ...index({ a: "x-1.safetensors", b: "x-1.safetensors" }),
    });
    expect(messageOf(() => readStoredTensors(missing))).toContain("x-1.safetensors: b: is missing");
    expect(messageOf(() => readStoredTensors(folder({})))).toContain("model.safetensors: does not exist");
    const gone = folder(index({ a: "x-1.safetensors" }));
    expect(messageOf(() => readStoredTensors(gone))).toContain("x-1.safetensors: does not exist");
    const swapped = folder({
      "x-1.safetensors": one("a"),
      "x-2.safetensors": one("b"),
      ...index({ a: "x-2.safetensors", b: "x-1.safetensors" }),
    });
    expect(messageOf(() => readStoredTensors(swapped))).toContain("x-2.safetensors: a: is in ");
    expect(messageOf(() => readStoredTensors(folder(index(["x"]))))).toContain("weight_map: is [");
  });
});
