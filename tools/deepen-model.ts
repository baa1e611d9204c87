/**
 * Writes a GGUF model with more layers and the same answers: `npx bun tools/deepen-model.ts <from.gguf> <to.gguf>
 * --times N`. The layers behind the model's own compute as much as those, and add zero. So a small real model has the
 * costs of a large one. The small one can draft for it, with the acceptance rate that its own rounding allows.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { type GgufFile, type GgufValue, readGgufFile } from "../model/gguf-file.ts";
import { storedTypes } from "../model/stored-types.ts";
import { type Entry, ggufBytes, type TensorInput } from "../tests/support/gguf-writer.ts";

/** Matrices whose products are added to the residual stream. */
const ADDED = /^(attn_output|ffn_down)\./;

/** Returns the bytes of the model with `times` as many layers; `bytes` are those of the file. */
export function deepened({ metadata, tensors }: GgufFile, bytes: Uint8Array, times: number): Uint8Array {
  if (!Number.isInteger(times) || times < 1)
    throw new Error(`--times is a whole number from 1, not ${times}`);
  const architecture = metadata.get("general.architecture")?.value;
  const key = `${architecture}.block_count`;
  const layers = Number(metadata.get(key)?.value);
  if (!(layers > 0)) throw new Error(`the file has no ${key}`);
  const names = new Set(tensors.map(({ name }) => name));
  for (let layer = 0; layer < layers; layer++) {
    const lacking = ["attn_output", "ffn_down"].find((part) => !names.has(`blk.${layer}.${part}.weight`));
    if (lacking !== undefined)
      throw new Error(`layer ${layer} has no ${lacking}: it adds to the stream otherwise`);
  }
  const entries = [...metadata].map(([name, value]): Entry => {
    return name === key ? [name, "u32", layers * times] : [name, typeOf(value), value.value];
  });
  const inputs = tensors.flatMap(({ name, dtype, shape, offset, bytes: count }): readonly TensorInput[] => {
    const type = storedTypes[dtype as keyof typeof storedTypes].gguf;
    const data = bytes.subarray(offset, offset + count);
    const [, layer, part] = /^blk\.(\d+)\.(.+)$/.exec(name) ?? [];
    if (layer === undefined) return [{ name, shape, type, data }];
    return Array.from({ length: times }, (_, time) => ({
      name: `blk.${Number(layer) + time * layers}.${part}`,
      ...{ shape, type },
      data: time > 0 && ADDED.test(part!) ? new Uint8Array(count) : data,
    }));
  });
  return ggufBytes({ entries, tensors: inputs });
}

function typeOf(value: GgufValue): string {
  return value.type === "array" ? `${value.of}[]` : value.type;
}

if (import.meta.main) {
  const { positionals, values } = parseArgs({
    options: { times: { type: "string", default: "10" } },
    allowPositionals: true,
  });
  const [from, to] = positionals;
  if (from === undefined || to === undefined) throw new Error("wanted: <from.gguf> <to.gguf> [--times 10]");
  writeFileSync(to, deepened(readGgufFile(from), readFileSync(from), Number(values.times)));
}
