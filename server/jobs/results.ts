/** Results of lines in OpenAI's format: one JSON object each. */

import { type ApiError, errorBody } from "../http/errors.ts";
import { jsonText } from "../http/json/slices.ts";
import type { LineAnswer } from "./door.ts";
import { ANSWERED, FAILED, type LineRecord, type LineResult, newId } from "./records.ts";

const noUsage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 } as const;

export async function answered(
  { line, customId }: LineRecord,
  { body, usage, ignored }: LineAnswer,
): Promise<LineResult> {
  const result = await jsonText({
    id: newId("batch_req_"),
    custom_id: customId,
    response: {
      status_code: 200,
      request_id: newId("req_"),
      ...(ignored === "" ? {} : { headers: { "x-bunting-ignored": ignored } }),
      body,
    },
    error: null,
  });
  return { line, state: ANSWERED, result, usage };
}

/** Result of a line whose request was refused. */
export function refused({ line, customId }: LineRecord, error: ApiError): LineResult {
  const result = JSON.stringify({
    id: newId("batch_req_"),
    custom_id: customId,
    response: { status_code: error.status, request_id: newId("req_"), body: errorBody(error) },
    error: { code: error.detail.apiCode ?? error.type, message: error.message },
  });
  return { line, state: FAILED, result, usage: noUsage };
}

/** Result of a line that did not run. */
export function unanswered({ line, customId }: LineRecord, code: string, message: string): LineResult {
  const id = newId("batch_req_");
  const result = JSON.stringify({ id, custom_id: customId, response: null, error: { code, message } });
  return { line, state: FAILED, result, usage: noUsage };
}
