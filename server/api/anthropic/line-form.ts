import { ApiError } from "../../http/errors.ts";
import { jsonText } from "../../http/json/slices.ts";
import { failedResult, headersOf, type InputLine, LineFault, type LineForm } from "../../jobs/line-form.ts";
import { ANSWERED, newId } from "../../jobs/records.ts";
import { Fields, refusal } from "../fields.ts";
import { anthropicErrorBody } from "./errors.ts";

/** Anthropic's format of the requests of a batch, and of their results. */
export const messageForm: LineForm = {
  read(value, line) {
    try {
      return readRequest(new Fields(value, `requests[${line - 1}]`));
    } catch (error) {
      if (error instanceof ApiError)
        throw new LineFault("invalid_request", error.message, error.detail.param);
      throw error;
    }
  },

  async answered({ line, customId }, answer) {
    const { body: message, usage } = answer;
    const succeeded = { custom_id: customId, ...headersOf(answer), result: { type: "succeeded", message } };
    return { line, state: ANSWERED, result: await jsonText(succeeded), usage };
  },

  refused(line, error) {
    const result = { type: "errored", error: anthropicErrorBody(error, newId("req_")) };
    return failedResult(line, { custom_id: line.customId, result });
  },

  unanswered(line, code, message) {
    if (code === "input_damaged")
      return messageForm.refused(line, new ApiError(500, "server_error", message));
    const type = code === "batch_cancelled" ? "canceled" : "expired";
    return failedResult(line, { custom_id: line.customId, result: { type } });
  },
};

/** Reads one request of a batch. Throws 400. */
export function readRequest(fields: Fields): InputLine {
  const customId = fields.requiredString("custom_id");
  if (!/^[a-zA-Z0-9_-]{1,64}$/.test(customId))
    throw refusal(fields.pathOf("custom_id"), "1 to 64 letters, digits, _ or -", customId);
  const params = fields.object("params");
  if (params === undefined) throw refusal(fields.pathOf("params"), "an object", undefined);
  fields.expectAllRead();
  return { customId, body: params.all() };
}
