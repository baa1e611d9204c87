/** GET /v1/usage: token use by API key, in the format of OpenAI's usage of completions. */
import { badRequest, quote } from "../http/errors.ts";
import type { Call } from "../http/route.ts";
import { type KeyUse, keyName, type UsageRow } from "../usage/use.ts";

const DAYS_DEFAULT = 7;
const DAYS_MAX = 366;
const DAY_S = 86_400;

/** Use by day (UTC) and API key, without days of no use. A key sees its own, an operator's key all. Throws 400. */
export function readUsage({ request, tenant, isAdmin }: Call, ledger: KeyUse): object {
  const given = new URL(request.url).searchParams.get("days");
  const days = given === null ? DAYS_DEFAULT : Number(given);
  if (!Number.isInteger(days) || days < 1 || days > DAYS_MAX)
    throw badRequest(`days must be an integer from 1 to ${DAYS_MAX}, but is ${quote(given)}`, "days");
  const byDay = Map.groupBy(ledger.rows(isAdmin ? null : tenant, days), ({ day }) => day);
  const data = [...byDay].map(([day, rows]) => ({
    object: "bucket",
    start_time: day * DAY_S,
    end_time: (day + 1) * DAY_S,
    results: rows.map(resultOf),
  }));
  return { object: "page", data, has_more: false, next_page: null };
}

function resultOf(row: UsageRow): object {
  return {
    object: "organization.usage.completions.result",
    input_tokens: row.promptTokens,
    input_cached_tokens: row.cachedTokens,
    output_tokens: row.completionTokens,
    num_model_requests: row.answered + row.failed + row.cancelled,
    api_key_id: keyName(row.tenant),
    bunting: {
      computed_tokens: row.promptTokens - row.cachedTokens,
      device_ms: Math.round(row.deviceMs),
      answered: row.answered,
      failed: row.failed,
      cancelled: row.cancelled,
    },
  };
}
