/** Results of lines in OpenAI's format: one JSON object each. */

import { type ApiError, errorBody } from "../http/errors.ts";
import type { LineAnswer } from "./door.ts";
import { ANSWERED, FAILED, type LineRecord, type LineResult, newId } from "./records.ts";

const noUsage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 } as const;

export function answered({ line, customId }: LineRecord, { body, usage }: LineAnswer): LineResult {
  const head = JSON.stringify({ id: newId("batch_req_"), custom_id: customId }).slice(0, -1);
  const requestId = JSON.stringify(newId("req_"));
  const response = `{"status_code":200,"request_id":${requestId},"body":${body}}`;
  return { line, state: ANSWERED, result: `${head},"response":${response},"error":null}`, usage };
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
