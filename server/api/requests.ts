/** Records of requests: GET /v1/requests, GET /v1/requests/{id} and GET /v1/requests/{id}/cache. */
import { RECORDS_MAX, type RequestOrder, type RequestRecords } from "../explain/request-records.ts";
import { ApiError, badRequest, quote } from "../http/errors.ts";
import type { Call } from "../http/route.ts";
import type { CacheRecords } from "./cache-records.ts";

const LIMIT_DEFAULT = 100;
const LIMIT_MAX = 1000;
const ORDERS: readonly RequestOrder[] = ["created", "duration", "first_token"];

/** GET /v1/requests */
export function listRequests({ request, tenant, isAdmin }: Call, records: RequestRecords) {
  const search = new URL(request.url).searchParams;
  const order = search.get("sort") ?? "created";
  if (!isOrder(order))
    throw badRequest(`sort must be one of ${ORDERS.join(", ")}, but is ${quote(order)}`, "sort");
  const slowMs = numberOf(search, "slow", 0, Number.POSITIVE_INFINITY) ?? 0;
  const limit = numberOf(search, "limit", 1, LIMIT_MAX) ?? LIMIT_DEFAULT;
  const found = records.list({ tenant, isAdmin }, { slowMs, order, limit: Math.floor(limit) });
  return {
    object: "list",
    data: found.records.map((record) => record.json()),
    has_more: found.hasMore,
    kept_max: RECORDS_MAX,
  };
}

/** GET /v1/requests/{id} and GET /v1/requests/{id}/cache; null if there is no such route. */
export function readRequest(call: Call, records: RequestRecords, cache: CacheRecords): object | null {
  const { rest: id, tenant, isAdmin } = call;
  if (id.includes("/")) return cache.read(call);
  const record = records.find(id, { tenant, isAdmin });
  if (record !== null) return record.json();
  const message = `there is no record of a request ${quote(id)} of this key; the server keeps the last ${RECORDS_MAX} of all keys`;
  throw new ApiError(404, "not_found_error", message);
}

function isOrder(text: string): text is RequestOrder {
  return (ORDERS as readonly string[]).includes(text);
}

function numberOf(search: URLSearchParams, name: string, least: number, most: number): number | null {
  const text = search.get(name);
  if (text === null) return null;
  const value = text.trim() === "" ? Number.NaN : Number(text);
  if (value >= least && value <= most) return value;
  const range = most === Number.POSITIVE_INFINITY ? `at least ${least}` : `from ${least} to ${most}`;
  throw badRequest(`${name} must be a number ${range}, but is ${quote(text)}`, name);
}
