/** `bunting jobs`: lists, shows and cancels a server's jobs. */

import { ConfigError, serverSettings, text, type Values } from "../config.ts";
import { type BatchObject, JobsClient } from "./jobs-client.ts";
import type { OptionList } from "./options.ts";
import { table } from "./table.ts";
import { apiKeySetting, targetOf } from "./target.ts";

export const jobsSettings = Object.freeze({
  url: text({
    default: `http://${serverSettings.host.default}:${serverSettings.port.default}`,
    placeholder: "url",
    sentence: "The server.",
  }),
  apiKey: apiKeySetting,
});

export const jobsOptions: OptionList<typeof jobsSettings> = {
  settings: jobsSettings,
  headings: { url: "Server:" },
};

/** Runs `list`, `show <id>` or `cancel <id>`; resolves to the exit code. */
export async function jobs(
  { url, apiKey }: Values<typeof jobsSettings>,
  what: string,
  id: string | null,
): Promise<number> {
  const client = new JobsClient(targetOf(url, apiKey));
  if (what === "list" && id === null) {
    console.log(jobsTable(await Array.fromAsync(client.batches())));
    return 0;
  }
  if ((what === "show" || what === "cancel") && id !== null) {
    const shown = what === "show" ? await client.batch(id) : await client.cancel(id);
    console.log(JSON.stringify(shown, null, 2));
    return 0;
  }
  throw new ConfigError("Say one of: bunting jobs list, bunting jobs show <id>, bunting jobs cancel <id>.");
}

export function jobsTable(batches: readonly BatchObject[]): string {
  const rows = batches.map((batch) => {
    const { total = 0, completed = 0, failed = 0 } = batch.request_counts ?? {};
    const created = new Date(batch.created_at * 1000).toISOString().slice(0, 16).replace("T", " ");
    const status = batch.paused_by == null ? batch.status : `paused: ${batch.paused_by}`;
    return [batch.id, created, total, completed, failed, status];
  });
  return table(["job", "created (UTC)", "lines", "answered", "failed", "status"], rows);
}
