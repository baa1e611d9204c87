import { ConfigError } from "../config.ts";

/** Writes a report as JSON, for `--json`. Throws ConfigError if the file cannot be written. */
export async function writeReport(file: string, report: object): Promise<void> {
  try {
    await Bun.write(file, `${JSON.stringify(report, null, 2)}\n`);
  } catch (error) {
    throw new ConfigError(`The report cannot be written: ${(error as Error).message}`);
  }
}
