/**
 * Converts input files of `bunting batch` to lines of a batch: JSON lines unchanged, CSV rows and text lines
 * as prompts.
 */

import { ConfigError } from "../config.ts";

/** Rules that turn CSV rows and text lines into prompts. */
export interface PromptRules {
  /**
   * Prompt template: {name} stands for a column, {line} for a line of text; null if the line is the prompt.
   */
  readonly template: string | null;
  readonly maxTokens: number;
}

/** Lines of a batch with their endpoint. */
export interface BatchInput {
  /** Route that the lines call. */
  readonly endpoint: string;
  /**
   * Yields the lines without their ends, from the first one on each call. Includes blank lines, because
   * faults name line numbers. Throws ConfigError.
   */
  lines(): Generator<string>;
}

/** Name of piped input, whose format depends on its first line. */
export const STANDARD_INPUT = "standard input";

/**
 * Batch made from a file. `source` yields the file's lines without LF, from the start on each call. Throws
 * ConfigError.
 */
export function batchInput(name: string, source: () => Iterable<string>, rules: PromptRules): BatchInput {
  if (/\.(jsonl|ndjson|json)$/i.test(name) || (name === STANDARD_INPUT && beginsWithObject(source()))) {
    if (rules.template !== null)
      throw new ConfigError(`--prompt-template is for CSV and text, and ${name} holds requests.`);
    const lines = function* (): Generator<string> {
      for (const line of source()) yield line.replace(/\r$/, "");
    };
    return { lines, endpoint: endpointOf(name, filledLines(source())) };
  }
  const isCsv = /\.csv$/i.test(name);
  const prompts = (): Generator<string> =>
    isCsv ? promptsOfCsv(name, source(), rules.template) : promptsOfText(source(), rules.template);
  return {
    endpoint: "/v1/chat/completions",
    *lines() {
      let line = 0;
      for (const content of prompts()) {
        line += 1;
        yield JSON.stringify({
          custom_id: String(line),
          method: "POST",
          url: "/v1/chat/completions",
          body: { messages: [{ role: "user", content }], max_tokens: rules.maxTokens },
        });
      }
    },
  };
}

function beginsWithObject(lines: Iterable<string>): boolean {
  for (const line of filledLines(lines)) return line.trimStart().startsWith("{");
  return false;
}

function* filledLines(lines: Iterable<string>): Generator<string> {
  for (const line of lines) if (line.trim() !== "") yield line.replace(/\r$/, "");
}

function endpointOf(name: string, lines: Generator<string>): string {
  try {
    const { value } = lines.next();
    if (value === undefined) throw new ConfigError(`${name} has no lines.`);
    lines.return(undefined);
    const { url } = JSON.parse(value) as { readonly url?: unknown };
    if (typeof url === "string") return url;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new ConfigError(
    `The first line of ${name} is not a request of a batch: an object with custom_id, method, url and body.`,
  );
}

function* promptsOfText(lines: Iterable<string>, template: string | null): Generator<string> {
  for (const line of filledLines(lines))
    yield template === null ? line : filled(template, new Map([["line", line]]));
}

function* promptsOfCsv(name: string, lines: Iterable<string>, template: string | null): Generator<string> {
  let head: readonly string[] | null = null;
  let number = 0;
  for (const row of csvRows(lines)) {
    number += 1;
    if (head === null) {
      head = row;
      expectTemplate(name, head, template);
    } else if (row.length === head.length) {
      yield filled(template!, new Map(head.map((column, at) => [column, row[at]!])));
    } else {
      throw new ConfigError(
        `Row ${number} of ${name} has ${row.length} cells, but there are ${head.length} columns.`,
      );
    }
  }
  if (head === null) throw new ConfigError(`${name} has no rows.`);
}

function expectTemplate(name: string, head: readonly string[], template: string | null): void {
  if (template !== null) return;
  const columns = head.map((column) => `{${column}}`).join(", ");
  throw new ConfigError(
    `Say with --prompt-template how a row of ${name} becomes a prompt; its columns are ${columns}.`,
  );
}

function filled(template: string, values: ReadonlyMap<string, string>): string {
  return template.replace(/\{([^{}]+)\}/g, (_whole, name: string) => {
    const value = values.get(name);
    if (value !== undefined) return value;
    const known = [...values.keys()].map((key) => `{${key}}`).join(", ");
    throw new ConfigError(`--prompt-template names {${name}}, but there is only ${known}.`);
  });
}

/**
 * Rows of cells (RFC 4180): quoted cells may contain commas, line ends, and doubled quotes. Skips empty
 * lines.
 */
export function* csvRows(lines: Iterable<string>): Generator<string[]> {
  let rows = 0;
  /** Text of a row that continues on the next line because a quote is open (an odd number of quotes). */
  let open: string | null = null;
  const broken = (): ConfigError =>
    new ConfigError(
      `The CSV is broken after row ${rows + 1}: a quote is not closed, or is followed by text.`,
    );
  for (const text of lines) {
    const isOdd = text.split('"').length % 2 === 0;
    const whole: string = open === null ? text : `${open}\n${text}`;
    open = isOdd === (open === null) ? whole : null;
    if (open !== null) continue;
    const row = cellsOf(whole);
    if (row === null) throw broken();
    if (row.length === 1 && row[0] === "") continue;
    rows += 1;
    yield row;
  }
  if (open !== null) throw broken();
}

/** Cells of a row; null if the quoting is broken. */
function cellsOf(line: string): string[] | null {
  const cell = /(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?$)/gy;
  const row: string[] = [];
  for (;;) {
    const found = cell.exec(line);
    if (found === null) return null;
    row.push(found[1]?.replaceAll('""', '"') ?? found[2]!);
    if (found[3] !== ",") return row;
  }
}
