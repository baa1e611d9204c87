import type { ApiError } from "../http/errors.ts";
import type { LineAnswer } from "./door.ts";
import { FAILED, type LineRecord, type LineResult } from "./records.ts";

/** Request of a line as the client wrote it. */
export interface InputLine {
  readonly customId: string;
  readonly body: Readonly<Record<string, unknown>>;
}

/** Wire format of a batch's lines and of their results, one JSON object each. */
export interface LineForm {
  /** Reads a line's request. `line`: its number, from 1. Throws LineFault. */
  read(value: Readonly<Record<string, unknown>>, line: number): InputLine;
  answered(line: LineRecord, answer: LineAnswer): Promise<LineResult>;
  /** Result of a line whose request was refused. */
  refused(line: LineRecord, error: ApiError): LineResult;
  /** Result of a line that did not run. */
  unanswered(line: LineRecord, code: UnansweredCode, message: string): LineResult;
}

/** Codes that OpenAI's results have. */
export type UnansweredCode = "batch_cancelled" | "batch_expired" | "input_damaged";

/** Fault of a line. */
export class LineFault extends Error {
  override readonly name = "LineFault";

  /** `code`: OpenAI's, or like OpenAI's. */
  constructor(
    readonly code: string,
    message: string,
    readonly param: string | null = null,
  ) {
    super(message);
  }
}

const noUsage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 } as const;

/** Result of a line without an answer. */
export function failedResult({ line }: LineRecord, result: object): LineResult {
  return { line, state: FAILED, result: JSON.stringify(result), usage: noUsage };
}

/** Headers that the HTTP response would have, for a result; none if no field was ignored. */
export function headersOf({ ignored }: LineAnswer): object {
  return ignored === "" ? {} : { headers: { "x-bunting-ignored": ignored } };
}
