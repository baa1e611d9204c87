/** Parts of a server that follow from its configuration alone. */

import { dirname, join } from "node:path";
import { ioReason } from "../model/model-error.ts";
import type { SessionPolicy } from "../scheduler/policy.ts";
import { type Config, ConfigError, isLoopback, needsKey } from "./config.ts";
import { ApiKeys, KeyFileError, tenantOf } from "./http/auth.ts";
import type { OriginRules } from "./http/origin.ts";
import type { JobSettings } from "./jobs/service.ts";
import { ownFolder } from "./own-files.ts";
import { KeyTotals } from "./usage/key-totals.ts";
import { UsageLedger } from "./usage/ledger.ts";

export function jobSettings({
  batchLinesMax,
  batchesMax,
  batchFileMib,
  batchStorageGib,
  batchResultDays,
}: Config): JobSettings {
  return {
    fileBytesMax: batchFileMib * 2 ** 20,
    linesMax: batchLinesMax,
    unfinishedMax: batchesMax,
    storageBytesMax: batchStorageGib * 2 ** 30,
    retentionSeconds: batchResultDays * 86_400,
  };
}

export function sessionPolicyOf({ sessions }: Config): SessionPolicy | null {
  return sessions === "off" ? null : { kind: "priced" };
}

export function originRules({ host, allowHost, corsOrigin }: Config): OriginRules {
  return { loopbackOnly: isLoopback(host), hosts: allowHost, origins: corsOrigin };
}

/** Opens the ledger of use per API key: on disk if `--data` names a folder, else in memory. Throws ConfigError. */
export function openLedger(
  { data, quota, metricsKeys }: Pick<Config, "data" | "quota" | "metricsKeys">,
  keys: ApiKeys,
): UsageLedger {
  const quotas = quota.map((given) => {
    const { key, tokensPerDay } = quotaOf(given);
    return { tenant: tenantOf(key), tokensPerDay };
  });
  const path = typeof data === "object" ? join(data.folder, "usage", "index.sqlite") : null;
  try {
    if (path !== null) ownFolder(dirname(path));
    const totals = metricsKeys === 0 ? null : new KeyTotals(metricsKeys, (tenant) => keys.nameOf(tenant));
    return new UsageLedger(path, quotas, totals);
  } catch (error) {
    const reason = (error as Error).message;
    throw new ConfigError(
      `The use of keys cannot be kept in ${path}: ${reason}; --data names another folder.`,
    );
  }
}

function quotaOf(given: string): { readonly key: string; readonly tokensPerDay: number } {
  const [, key, tokens] = /^(.+)=(\d+)(?:\/day)?$/.exec(given)!;
  return { key: key!, tokensPerDay: Number(tokens) };
}

/** Notes for people about quotas of keys that the server does not accept; they name no key. */
export function quotaNotes({ quota }: Pick<Config, "quota">, keys: ApiKeys): readonly string[] {
  return quota.flatMap((given, index) =>
    keys.accepts(quotaOf(given).key)
      ? []
      : [`--quota ${index + 1} of ${quota.length} limits nobody: its key is none of the API keys`],
  );
}

/** Throws ConfigError if others can reach the address without a key. */
export function expectGuarded(config: Config): void {
  if (isLoopback(config.host) || config.insecure || needsKey(config)) return;
  throw new ConfigError(
    `Others can reach ${config.host}: give an --api-key or --api-key-file, or --insecure to let everybody in.`,
  );
}

export function openKeys(config: Config): ApiKeys {
  try {
    const { apiKey: keys, apiKeyFile: file, adminKey: adminKeys, adminKeyFile: adminFile } = config;
    return new ApiKeys({ keys, file, adminKeys, adminFile });
  } catch (error) {
    if (!(error instanceof KeyFileError)) throw error;
    const { file, cause } = error;
    const reason = cause instanceof Error && !("code" in cause) ? cause.message : ioReason(cause);
    throw new ConfigError(`No API key can be taken from ${file}: ${reason}.`);
  }
}
