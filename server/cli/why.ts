/** `bunting why`: shows where a request's time went, or lists the slowest requests of a server. */

import { type Cause, causes, type Phase } from "../../scheduler/explain/causes.ts";
import { serverSettings, text, type Values } from "../config.ts";
import type { Blocker, RequestFacts } from "../explain/request-facts.ts";
import { ask, ServerError, serverError, type Target } from "./client.ts";
import type { OptionList } from "./options.ts";
import { table } from "./table.ts";
import { apiKeySetting, targetOf } from "./target.ts";

export const whySettings = Object.freeze({
  url: text({
    default: `http://${serverSettings.host.default}:${serverSettings.port.default}`,
    placeholder: "url",
    sentence: "The server.",
  }),
  apiKey: apiKeySetting,
});

export const whyOptions: OptionList<typeof whySettings> = {
  settings: whySettings,
  headings: { url: "Server:" },
};

/** Requests in the list. */
const LISTED = 20;

/** Shows the request of this id; null: lists the slowest ones. Resolves to the exit code. */
export async function why({ url, apiKey }: Values<typeof whySettings>, id: string | null): Promise<number> {
  const target = targetOf(url, apiKey);
  if (id === null) {
    const { data } = (await read(target, `/requests?sort=duration&limit=${LISTED}`)) as {
      readonly data: readonly RequestFacts[];
    };
    console.log(data.length === 0 ? "The server has answered no request yet." : requestTable(data));
  } else {
    const record = (await read(target, `/requests/${encodeURIComponent(id)}`)) as RequestFacts;
    console.log(waterfall(record));
  }
  return 0;
}

async function read(target: Target, route: string): Promise<unknown> {
  const response = await ask(target, route, {});
  if (!response.ok) throw await serverError(response, target);
  return await response.json().catch(() => {
    throw new ServerError(0, `${target.url} does not answer as a Bunting server does.`);
  });
}

/** Table of requests, each with the cause that took most of its time. */
export function requestTable(requests: readonly RequestFacts[]): string {
  const rows = requests.map((one) => {
    const [cause = "", ms = 0] = Object.entries(one.causes).sort(([, a], [, b]) => b - a)[0] ?? [];
    const share = one.total_ms > 0 ? Math.round((100 * ms) / one.total_ms) : 0;
    const time = new Date(one.created * 1000).toISOString().slice(11, 19);
    const first = one.first_token_ms === null ? null : one.first_token_ms.toFixed(0);
    return [
      one.id,
      time,
      one.total_ms.toFixed(0),
      first,
      one.tokens.generated,
      one.status,
      `${cause} ${share} %`,
    ];
  });
  return table(["request", "at (UTC)", "ms", "first", "tokens", "status", "mostly"], rows);
}

const BAR_COLUMNS = 32;
const phaseNames: Readonly<Record<Phase, string>> = {
  arriving: "before the queue",
  waiting: "waiting for",
  prompt: "prompt",
  answer: "answer",
  machine: "machine",
  reader: "reader",
};

/** Lines that show the time of a request by cause, each bar where the one before it ends. */
export function waterfall(record: RequestFacts): string {
  const { total_ms: totalMs, first_token_ms: firstMs, tokens, late } = record;
  const { memory, host, disk } = tokens.found;
  const found = [
    `${memory} cached`,
    ...(host === 0 ? [] : [`${host} from the host's memory`]),
    ...(disk === 0 ? [] : [`${disk} from disk`]),
  ].join(", ");
  const lines = [
    `${record.id}  ${record.route}  ${record.model}  ${record.status}`,
    ...(record.error === null ? [] : [record.error]),
    `${ms(totalMs)} in all${firstMs === null ? "" : `, first token after ${ms(firstMs)}`}; ` +
      `${tokens.prompt} prompt tokens (${found}), ${tokens.generated} generated`,
    "",
  ];
  let passedMs = 0;
  let phase: Phase | null = null;
  for (const cause of causes as readonly Cause[]) {
    const part = record.causes[cause.name] ?? 0;
    if (part === 0) continue;
    if (cause.phase !== phase) lines.push(phaseNames[cause.phase]);
    phase = cause.phase;
    const share = totalMs > 0 ? (100 * part) / totalMs : 0;
    lines.push(
      `  ${cause.name.padEnd(16)}${part.toFixed(1).padStart(11)} ms ${share.toFixed(1).padStart(5)} %  ` +
        `${bar(passedMs, part, totalMs)}  ${cause.words}`,
    );
    passedMs += part;
  }
  const notes = [
    record.behind === null ? "" : `Waited longest behind the prompt of ${named(record.behind)}.`,
    record.same_prefix_of === null ? "" : `Shared a prefix that ${named(record.same_prefix_of)} computed.`,
    late.tokens === 0 ? "" : `Tokens after their target: ${late.tokens}, by ${ms(late.ms)} together.`,
    record.preemptions === 0
      ? ""
      : `Preemptions: ${record.preemptions}; ${tokens.recomputed} tokens were computed again.`,
    tokens.drafts.checked === 0
      ? ""
      : `${tokens.drafts.right} of ${tokens.drafts.checked} drafted tokens were right.`,
  ].filter((note) => note !== "");
  return [...lines, ...(notes.length === 0 ? [] : ["", ...notes])].join("\n");
}

function named({ request, ms: waitedMs }: Blocker): string {
  return `${request ?? "another key's request"} (${ms(waitedMs)})`;
}

function bar(fromMs: number, partMs: number, totalMs: number): string {
  const column = (at: number): number => Math.round((BAR_COLUMNS * at) / totalMs);
  const from = Math.min(column(fromMs), BAR_COLUMNS - 1);
  const length = Math.max(1, column(fromMs + partMs) - from);
  return (" ".repeat(from) + "█".repeat(length)).slice(0, BAR_COLUMNS).padEnd(BAR_COLUMNS);
}

function ms(value: number): string {
  return value < 10_000 ? `${value.toFixed(1)} ms` : `${(value / 1000).toFixed(2)} s`;
}
