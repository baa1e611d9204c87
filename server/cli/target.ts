import { optional, variableName } from "../config.ts";
import type { Target } from "./client.ts";

export const apiKeySetting = optional({ placeholder: "key", sentence: "Key to send." });

/** Target server from a command's options. */
export function targetOf(url: string, apiKey: string | null): Target {
  const given = apiKey === null ? "The server wants an API key" : "The server does not know this API key";
  const unknownKey = `${given}: give one that it knows with --api-key, or as ${variableName("apiKey")}.`;
  return { url, apiKey, unknownKey };
}
