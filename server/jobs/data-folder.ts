/** Chooses the folder of files and batches, and handles a folder that cannot be opened. */

import { homedir } from "node:os";
import { isAbsolute, join } from "node:path";
import { type Config, ConfigError } from "../config.ts";
import { openStore } from "./service.ts";
import type { JobStore } from "./store.ts";

/** Job storage of a server. */
export interface KeptJobs {
  /** null if jobs are not kept. */
  readonly store: JobStore | null;
  /** Location, or the reason for having none, for the operator; null if there is nothing to report. */
  readonly note: string | null;
}

/**
 * Opens the configured folder, or the default one. A server does not start without a configured folder
 * (ConfigError). Without the default folder it serves without jobs, for example because another server with
 * the same model has it open.
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
      note: `this server keeps no files and runs no batches: ${reason}; --data <folder> gives it another folder`,
    };
  }
}

/**
 * Default folder: one for each model, so that no server continues the jobs of another model. null if there is
 * none, as for simulated engines, whose answers are of no use.
 */
export function modelFolder({ data, device }: Pick<Config, "data" | "device">, model: string): string | null {
  if (data !== "auto" || device.kind === "simulated") return null;
  const { XDG_DATA_HOME: given = "" } = process.env;
  const home = isAbsolute(given) ? given : join(homedir(), ".local", "share");
  return join(home, "bunting", fileName(model));
}

/** Escapes a model's name for use as a file name: as in a URL, and leading dots too. */
function fileName(model: string): string {
  return encodeURIComponent(model).replace(/^\.+/, (dots) => "%2E".repeat(dots.length));
}
