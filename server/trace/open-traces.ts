import { type Config, ConfigError, parseHttpUrl } from "../config.ts";
import { version } from "../version.ts";
import type { Traces } from "./traces.ts";

/** OpenTelemetry's variables that name a collector. */
const ENDPOINT_VARIABLES = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/**
 * Opens traces if the configuration or the environment names a collector; null: neither does. Throws ConfigError
 * for a variable that is no URL.
 */
export async function openTraces(
  { otlpEndpoint }: Pick<Config, "otlpEndpoint">,
  env: NodeJS.ProcessEnv = process.env,
): Promise<Traces | null> {
  if (env.OTEL_SDK_DISABLED?.toLowerCase() === "true") return null;
  const named = ENDPOINT_VARIABLES.filter((name) => (env[name] ?? "") !== "");
  if (otlpEndpoint === null && named.length === 0) return null;
  for (const name of named) {
    try {
      parseHttpUrl(env[name]!);
    } catch (error) {
      throw new ConfigError(`${name}: ${(error as Error).message}`);
    }
  }
  const { OtlpTraces } = await import("./otlp.ts");
  return new OtlpTraces({ endpoint: otlpEndpoint, version, log: console.error });
}
