import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

interface Entry {
  readonly data_offsets: readonly [number, number];
}

/** Makes a folder's model one without a vocabulary projection, as AutoModel saves it: its tensors lose `model.`, and lm_head
 *  goes. */
export function renameTensors(dir: string): void {
  const file = join(dir, "model.safetensors");
  const bytes = readFileSync(file);
  const dataAt = 8 + Number(bytes.readBigUint64LE(0));
  const entries = Object.entries(JSON.parse(bytes.toString("utf8", 8, dataAt)) as Record<string, Entry>);
  const header: Record<string, unknown> = {};
  const data: Buffer[] = [];
  let at = 0;
  for (const [name, entry] of entries) {
    if (name === "lm_head.weight" || name === "__metadata__") continue;
    const [begin, end] = entry.data_offsets;
    header[name.replace(/^model\./, "")] = { ...entry, data_offsets: [at, at + end - begin] };
    data.push(bytes.subarray(dataAt + begin, dataAt + end));
    at += end - begin;
  }
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUint64LE(BigInt(json.length));
  writeFileSync(file, Buffer.concat([length, json, ...data]));
}
