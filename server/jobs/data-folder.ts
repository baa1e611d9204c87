/** Where files and batches are kept, and what becomes of a server that cannot have the folder. */

import { homedir } from "node:os";
import { isAbsolute, join } from "node:path";
import { type Config, ConfigError } from "../config.ts";
import { openStore } from "./service.ts";
import type { JobStore } from "./store.ts";

/** What a server keeps of jobs. */
export interface KeptJobs {
  /** null: nothing. */
  readonly store: JobStore | null;
  /** Where, or why not, for the owner; null: there is nothing to say. */
  readonly note: string | null;
}

/**
 * Opens the folder that a server was told, or its own. A server that was told one does not start without it (ConfigError); one that takes its own
 * serves without jobs when it cannot, because another server with the same model has it, say.
 */
export function openJobs(config: Pick<Config, "data" | "device">, model: string): KeptJobs {
  const { data } = config;
  if (typeof data === "object") return { store: openStore(data.folder), note: null };
  const folder = modelFolder(config, model);
  if (folder === null) return { store: null, note: null };
  try {
    return { store: openStore(folder), note: `jobs are kept in ${folder}` };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const reason = error.message.replace(/\.$/, "");
    return {
      store: null,
      note: `there are no jobs here: ${reason}; --data <folder> gives this server another`,
    };
  }
}

/**
 * The folder that a server takes by itself: one for each model, so that no server goes on with the jobs of another model. null: it takes none,
 * as simulated engines do, whose answers nobody waits for.
 */
export function modelFolder({ data, device }: Pick<Config, "data" | "device">, model: string): string | null {
  if (data !== "auto" || device.kind === "simulated") return null;
  const { XDG_DATA_HOME: given = "" } = process.env;
  const home = isAbsolute(given) ? given : join(homedir(), ".local", "share");
  return join(home, "bunting", fileName(model));
}

/** A model's name as that of a file: what a URL would escape, and dots at its beginning, are escaped. */
function fileName(model: string): string {
  return encodeURIComponent(model).replace(/^\.+/, (dots) => "%2E".repeat(dots.length));
}
