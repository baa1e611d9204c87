/** `bunting models`: lists the models in the cache, or removes one. */

import { formatBytes } from "../../gpu/memory.ts";
import { ConfigError } from "../config.ts";
import { listCached, removeCached } from "../hub/cached.ts";
import { HubError } from "../hub/hub-error.ts";
import { readModelName, unknownName } from "../hub/resolve.ts";
import { hubSettings } from "../hub/settings.ts";
import { table } from "./table.ts";

/** Resolves to the exit code. */
export async function models(action: string | null, name: string | null): Promise<number> {
  const { cache } = hubSettings();
  if (action === null || (action === "list" && name === null)) {
    console.log(listText(cache));
    return 0;
  }
  if (action !== "rm" || name === null)
    throw new ConfigError("bunting models lists the models; bunting models rm <name> removes one.");
  const model = readModelName(name);
  if (model === null) throw new HubError(unknownName(name));
  console.log(`${formatBytes(removeCached(cache, model))} are free again.`);
  return 0;
}

function listText(cache: string): string {
  const found = listCached(cache);
  if (found.length === 0) return `No models in ${cache}; \`bunting pull Qwen/Qwen3-0.6B\` fetches one.`;
  return table(
    ["model", "size", "last use", "where"],
    found.map(({ name, bytes, incompleteBytes, usedMs, path }) => [
      name,
      `${formatBytes(bytes)}${incompleteBytes > 0 ? ` and ${formatBytes(incompleteBytes)} unfinished` : ""}`,
      new Date(usedMs).toISOString().slice(0, 10),
      path,
    ]),
  );
}
