import { join } from "node:path";
import { ConfigError } from "../config.ts";
import { ownFolder } from "../own-files.ts";
import type { JobRunner } from "./runner.ts";
import { JobStore } from "./store.ts";
import { StoreError } from "./store-error.ts";

/** Operator settings of jobs. */
export interface JobSettings {
  readonly fileBytesMax: number;
  readonly linesMax: number;
  /** Unfinished batches of a key at most. */
  readonly unfinishedMax: number;
  /** Bytes of the disk that files and results may take before the server refuses further ones. */
  readonly storageBytesMax: number;
  /** Seconds for which uploads and results are kept. */
  readonly retentionSeconds: number;
}

/** Files and batches, for the routes. */
export interface JobService {
  readonly store: JobStore;
  readonly runner: JobRunner;
  readonly settings: JobSettings;
  readonly nowSeconds: () => number;
}

/** Opens the store in a folder. Throws ConfigError if the folder is unusable. */
export function openStore(folder: string, onWrite?: (what: string) => void): JobStore {
  try {
    ownFolder(join(folder, "jobs"));
    return new JobStore(join(folder, "jobs"), onWrite);
  } catch (error) {
    if (error instanceof StoreError) throw new ConfigError(error.message);
    const reason = error instanceof Error ? error.message : String(error);
    throw new ConfigError(`The folder ${folder} cannot be used for jobs: ${reason}`);
  }
}
