/** Settings of the hub, from the same environment variables as huggingface_hub. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { hubCache, hubHome } from "../../model/hub-cache.ts";
import { HubError } from "./hub-error.ts";

export interface HubSettings {
  /** Address without a trailing slash. */
  readonly endpoint: string;
  /** Access token; null for none. */
  readonly token: string | null;
  /** Cache folder. */
  readonly cache: string;
  /** True if no request may be sent. */
  readonly isOffline: boolean;
}

/** Reads HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE. Throws HubError. */
export function hubSettings(env: NodeJS.ProcessEnv = process.env): HubSettings {
  const endpoint = (env.HF_ENDPOINT || "https://huggingface.co").replace(/\/+$/, "");
  if (!/^https?:\/\//.test(endpoint) || !URL.canParse(endpoint))
    throw new HubError(
      `HF_ENDPOINT is ${JSON.stringify(endpoint)}; wanted: an address that begins with https://.`,
    );
  return {
    endpoint,
    token: env.HF_TOKEN || env.HUGGING_FACE_HUB_TOKEN || storedToken(env),
    cache: hubCache(env),
    isOffline: ["1", "ON", "YES", "TRUE"].includes((env.HF_HUB_OFFLINE ?? "").toUpperCase()),
  };
}

/** Token that `hf auth login` has stored; null for none. */
function storedToken(env: NodeJS.ProcessEnv): string | null {
  try {
    return readFileSync(env.HF_TOKEN_PATH || join(hubHome(env), "token"), "utf8").trim() || null;
  } catch {
    return null;
  }
}
