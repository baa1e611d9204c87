import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

interface Entry {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data_offsets: readonly [number, number];
}

/** Tensor of a safetensors file. */
export interface FileTensor extends Omit<Entry, "data_offsets"> {
  readonly data: Buffer;
}

/** Rewrites a folder's model.safetensors with the tensors as changed by `edit`. */
export function editTensors(dir: string, edit: (tensors: Map<string, FileTensor>) => void): void {
  const file = join(dir, "model.safetensors");
  const bytes = readFileSync(file);
  const dataAt = 8 + Number(bytes.readBigUint64LE(0));
  const { __metadata__: _, ...entries } = JSON.parse(bytes.toString("utf8", 8, dataAt)) as Record<
    string,
    Entry
  >;
  const tensors = new Map(
    Object.entries(entries).map(
      ([
        name,
        {
          dtype,
          shape,
          data_offsets: [begin, end],
        },
      ]) => [name, { dtype, shape, data: bytes.subarray(dataAt + begin, dataAt + end) }],
    ),
  );
  edit(tensors);
  let at = 0;
  const header = [...tensors].map(([name, { dtype, shape, data }]) => {
    const begin = at;
    at += data.length;
    return [name, { dtype, shape, data_offsets: [begin, at] }];
  });
  const json = Buffer.from(JSON.stringify(Object.fromEntries(header)));
  const length = Buffer.alloc(8);
  length.writeBigUint64LE(BigInt(json.length));
  writeFileSync(file, Buffer.concat([length, json, ...[...tensors.values()].map(({ data }) => data)]));
}

/**
 * Removes the vocabulary projection from a folder's model, as AutoModel saves it: tensors lose `model.`, and
 * lm_head goes.
 */
export function renameTensors(dir: string): void {
  editTensors(dir, (tensors) => {
    for (const [name, tensor] of [...tensors]) {
      tensors.delete(name);
      if (name !== "lm_head.weight") tensors.set(name.replace(/^model\./, ""), tensor);
    }
  });
}
