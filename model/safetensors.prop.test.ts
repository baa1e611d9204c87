import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../tests/support/property.ts";
import { ModelError } from "./model-error.ts";
import { headerLength, parseHeader } from "./safetensors.ts";

const dtypes = { U8: 1, BF16: 2, F32: 4, F64: 8 } as const;
type Dtype = keyof typeof dtypes;

/** Valid file with tensors laid out one after the other. */
const validFile = fc
  .array(
    fc.record({
      dtype: fc.constantFrom(...(Object.keys(dtypes) as Dtype[])),
      shape: fc.array(fc.nat(4), { maxLength: 3 }),
    }),
    { maxLength: 5 },
  )
  .map((tensors) => {
    let end = 0;
    const header: Record<string, unknown> = {};
    tensors.forEach(({ dtype, shape }, index) => {
      const begin = end;
      end += shape.reduce((product, size) => product * size, dtypes[dtype]);
      header[`t${index}`] = { dtype, shape, data_offsets: [begin, end] };
    });
    const json = new TextEncoder().encode(JSON.stringify(header));
    const bytes = new Uint8Array(8 + json.length + end);
    new DataView(bytes.buffer).setBigUint64(0, BigInt(json.length), true);
    bytes.set(json, 8);
    return { bytes, count: tensors.length };
  });

/**
 * Bytes per element of any dtype of the format; damage may turn one dtype into another. The name contains the
 * bits.
 */
function elementBytes(dtype: string): number {
  return dtype === "BOOL" ? 1 : Number.parseInt(dtype.replace(/^\D+/, ""), 10) / 8;
}

/** Runs the three steps of reading a file on bytes. */
function readBytes(bytes: Uint8Array): ReturnType<typeof parseHeader> {
  const length = headerLength("w", bytes.subarray(0, 8), bytes.length);
  return parseHeader("w", bytes.subarray(8, 8 + length), bytes.length);
}

test("every valid file is read", () => {
  fc.assert(
    fc.property(validFile, ({ bytes, count }) => {
      expect(readBytes(bytes)).toHaveLength(count);
    }),
    runs(300),
  );
});

test("a damaged file gives tensors inside the file or a ModelError, never anything else", () => {
  // A byte may become any other; digits and brackets are likelier because they reach deeper code than random
  // bytes.
  const byte = fc.oneof(fc.nat(255), fc.constantFrom(...new TextEncoder().encode('0123456789-.e[]{},:"')));
  const damage = fc.array(fc.tuple(fc.nat(), byte), { minLength: 1, maxLength: 3 });
  let survivors = 0;
  fc.assert(
    fc.property(validFile, damage, fc.integer({ min: -4, max: 4 }), ({ bytes }, changes, growth) => {
      const damaged = new Uint8Array(Math.max(0, bytes.length + (growth < 3 ? 0 : growth)));
      damaged.set(bytes.subarray(0, damaged.length));
      for (const [at, value] of changes) damaged[at % Math.max(1, damaged.length)] = value;
      const file = growth < -2 ? damaged.subarray(0, Math.max(0, damaged.length + growth)) : damaged;
      let tensors: ReturnType<typeof parseHeader>;
      try {
        tensors = readBytes(file);
      } catch (error) {
        expect(error).toBeInstanceOf(ModelError);
        return;
      }
      survivors += 1;
      let covered = 8 + headerLength("w", file.subarray(0, 8), file.length);
      for (const tensor of tensors) {
        expect(tensor.offset).toBe(covered);
        expect(tensor.bytes).toBe(
          tensor.shape.reduce((product, size) => product * size, elementBytes(tensor.dtype)),
        );
        covered += tensor.bytes;
      }
      expect(covered).toBe(file.length);
    }),
    runs(2000),
  );
  expect(survivors).toBeGreaterThan(20); // damage that leaves the file valid occurs too
});
