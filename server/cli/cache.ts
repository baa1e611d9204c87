/** `bunting cache`: lists the KV pages on disk by model, or removes them. */

import { formatBytes } from "../../gpu/memory.ts";
import { ConfigError, flag, serverSettings, type Values } from "../config.ts";
import { listStored, removeStored, type StoredModel } from "../kv-disk/folders.ts";
import { diskRoot } from "../kv-disk/plan.ts";
import type { OptionList } from "./options.ts";
import { table } from "./table.ts";

export const cacheSettings = Object.freeze({
  data: {
    ...serverSettings.data,
    defaultText: "the user's cache folder",
    sentence: "Folder of a server that was started with `--data <folder>`: its pages are listed or removed.",
  },
  size: flag({ sentence: "Print the bytes of all models alone." }),
});

export const cacheOptions: OptionList<typeof cacheSettings> = {
  settings: cacheSettings,
  headings: { data: "Place and output:" },
};

/** Resolves to the exit code, 1 if a server keeps pages that were to be removed. */
export async function cache(
  { data, size }: Values<typeof cacheSettings>,
  action: string | null,
  name: string | null,
): Promise<number> {
  const root = diskRoot({ data });
  const stored = root === null ? [] : listStored(root);
  if (action === "clear") return clear(stored, name);
  if (action !== null && (action !== "list" || name !== null))
    throw new ConfigError(
      "bunting cache lists the KV pages on disk; bunting cache clear [model] removes them.",
    );
  if (size) console.log(bytesOf(stored));
  else if (stored.length > 0) console.log(listText(stored));
  else
    console.log(
      `There are no KV pages in ${root ?? "the user's cache folder"}; --data <folder> names that of a server.`,
    );
  return 0;
}

function clear(stored: readonly StoredModel[], name: string | null): number {
  const named = stored.filter((one) => name === null || one.name === name);
  if (named.length === 0 && name !== null)
    throw new ConfigError(`There are no KV pages of ${name} on disk; \`bunting cache\` lists the models.`);
  const [removed, kept] = [[] as StoredModel[], [] as StoredModel[]];
  for (const one of named) (removeStored(one) ? removed : kept).push(one);
  console.log(`${formatBytes(bytesOf(removed))} are free again.`);
  for (const one of kept) console.error(`${one.name} is being served; its pages in ${one.folder} stay.`);
  return kept.length === 0 ? 0 : 1;
}

function bytesOf(stored: readonly StoredModel[]): number {
  return stored.reduce((sum, { bytes }) => sum + bytes, 0);
}

function listText(stored: readonly StoredModel[]): string {
  return table(
    ["model", "size", "last use", "where"],
    stored.map(({ name, bytes, usedMs, folder }) => [
      name,
      formatBytes(bytes),
      new Date(usedMs).toISOString().slice(0, 16).replace("T", " "),
      folder,
    ]),
  );
}
