import { errorBody, quote } from "../http/errors.ts";
import { jsonText } from "../http/json/slices.ts";
import { failedResult, headersOf, LineFault, type LineForm } from "./line-form.ts";
import { ANSWERED, type BatchEndpoint, newId } from "./records.ts";

const CUSTOM_ID_CHARACTERS_MAX = 512;

/** OpenAI's format of lines that call one endpoint. */
export function openaiForm(endpoint: BatchEndpoint): LineForm {
  return {
    read(value) {
      const customId = value.custom_id;
      if (typeof customId !== "string" || customId === "" || customId.length > CUSTOM_ID_CHARACTERS_MAX) {
        const wanted = `a string of 1 to ${CUSTOM_ID_CHARACTERS_MAX} characters`;
        throw new LineFault(
          "invalid_custom_id",
          `custom_id must be ${wanted}, but is ${quote(customId)}.`,
          "custom_id",
        );
      }
      if (value.method !== "POST") {
        throw new LineFault(
          "invalid_method",
          `method must be "POST", but is ${quote(value.method)}.`,
          "method",
        );
      }
      if (value.url !== endpoint) {
        const message = `url must be the batch's endpoint ${quote(endpoint)}, but is ${quote(value.url)}.`;
        throw new LineFault("invalid_url", message, "url");
      }
      const body = value.body;
      if (typeof body !== "object" || body === null || Array.isArray(body)) {
        throw new LineFault("invalid_body", `body must be a JSON object, but is ${quote(body)}.`, "body");
      }
      return { customId, body: body as Readonly<Record<string, unknown>> };
    },

    async answered({ line, customId }, answer) {
      const { body, usage } = answer;
      const result = await jsonText({
        id: newId("batch_req_"),
        custom_id: customId,
        response: { status_code: 200, request_id: newId("req_"), ...headersOf(answer), body },
        error: null,
      });
      return { line, state: ANSWERED, result, usage };
    },

    refused(line, error) {
      return failedResult(line, {
        id: newId("batch_req_"),
        custom_id: line.customId,
        response: { status_code: error.status, request_id: newId("req_"), body: errorBody(error) },
        error: { code: error.detail.apiCode ?? error.type, message: error.message },
      });
    },

    unanswered(line, code, message) {
      const id = newId("batch_req_");
      return failedResult(line, { id, custom_id: line.customId, response: null, error: { code, message } });
    },
  };
}
