/** What `bunting batch` is given, as lines of a batch: JSON lines as they are, rows of CSV and lines of text as prompts. */

import { ConfigError } from "../config.ts";

/** How prompts are made of rows and lines. */
export interface PromptRules {
  /** {name} stands for a column, {line} for a line of text; null: a line is the prompt. */
  readonly template: string | null;
  readonly maxTokens: number;
}

/** The lines of a batch, each without its end, and the route that they ask. Throws ConfigError. */
export function batchLines(
  name: string,
  text: string,
  rules: PromptRules,
): { readonly lines: readonly string[]; readonly endpoint: string } {
  if (/\.(jsonl|ndjson)$/i.test(name)) {
    const lines = text.split(/\r?\n/).filter((line) => line.trim() !== "");
    return { lines, endpoint: endpointOf(name, lines[0]) };
  }
  const prompts = /\.csv$/i.test(name)
    ? promptsOfCsv(name, text, rules.template)
    : promptsOfText(text, rules.template);
  const lines = prompts.map((content, index) =>
    JSON.stringify({
      custom_id: String(index + 1),
      method: "POST",
      url: "/v1/chat/completions",
      body: { messages: [{ role: "user", content }], max_tokens: rules.maxTokens },
    }),
  );
  return { lines, endpoint: "/v1/chat/completions" };
}

function endpointOf(name: string, line: string | undefined): string {
  try {
    const { url } = JSON.parse(line ?? "") as { readonly url?: unknown };
    if (typeof url === "string") return url;
  } catch {
    // Told below.
  }
  throw new ConfigError(
    `The first line of ${name} is not a request of a batch: an object with custom_id, method, url and body.`,
  );
}

function promptsOfText(text: string, template: string | null): string[] {
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== "");
  return lines.map((line) => (template === null ? line : filled(template, new Map([["line", line]]))));
}

function promptsOfCsv(name: string, text: string, template: string | null): string[] {
  const [head, ...rows] = parseCsv(text);
  if (head === undefined) throw new ConfigError(`${name} has no rows.`);
  if (template === null) {
    const columns = head.map((column) => `{${column}}`).join(", ");
    throw new ConfigError(
      `Say with --prompt-template how a row of ${name} becomes a prompt; its columns are ${columns}.`,
    );
  }
  return rows.map((row, index) => {
    if (row.length !== head.length) {
      throw new ConfigError(
        `Row ${index + 2} of ${name} has ${row.length} cells, but there are ${head.length} columns.`,
      );
    }
    return filled(template, new Map(head.map((column, at) => [column, row[at]!])));
  });
}

function filled(template: string, values: ReadonlyMap<string, string>): string {
  return template.replace(/\{([^{}]+)\}/g, (_whole, name: string) => {
    const value = values.get(name);
    if (value !== undefined) return value;
    const known = [...values.keys()].map((key) => `{${key}}`).join(", ");
    throw new ConfigError(`--prompt-template names {${name}}, but there is only ${known}.`);
  });
}

/** Rows of cells (RFC 4180): cells in quotes may hold commas, line ends, and quotes written twice. Empty lines are left out. */
export function parseCsv(text: string): string[][] {
  const rows: string[][] = [];
  const cell = /(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|$)/gy;
  let row: string[] = [];
  for (let start = text.startsWith("\ufeff") ? 1 : 0; start <= text.length; start = cell.lastIndex) {
    cell.lastIndex = start;
    const found = cell.exec(text);
    if (found === null)
      throw new ConfigError(
        `The CSV is broken after row ${rows.length + 1}: a quote is not closed, or is followed by text.`,
      );
    row.push(found[1]?.replaceAll('""', '"') ?? found[2]!);
    if (found[3] === ",") continue;
    if (row.length > 1 || row[0] !== "") rows.push(row);
    row = [];
    if (found[3] === "") break;
  }
  return rows;
}
