/** OpenAI's Batches: POST /v1/batches and its related routes. */

import { ApiError, badRequest, quote } from "../../http/errors.ts";
import type { Call } from "../../http/route.ts";
import { type BatchRecord, batchEndpoints, newId, unreadBatch } from "../../jobs/records.ts";
import type { JobService } from "../../jobs/service.ts";
import { requestLimits } from "../../request/limits.ts";
import { Fields, refusal } from "../fields.ts";
import { metadataOf } from "../metadata.ts";
import { expectStorage, expirySeconds, pageObject, pageQuery } from "./files.ts";

const LISTED = 20;
const LISTED_MAX = 100;
const HOURS_MAX = 24 * 365;

/** Throws 429 for a key with too many unfinished batches, 507 if the disk has no room for further results. */
export function expectBatchRoom(jobs: JobService, tenant: string): void {
  expectStorage(jobs, 0); // the size of the batch's results is not known yet
  const count = jobs.runner.activeOf(tenant);
  const max = jobs.settings.unfinishedMax;
  if (count < max) return;
  throw new ApiError(
    429,
    "rate_limit_error",
    `this key has ${count} unfinished batches, and ${max} are allowed (--batches-max): wait for some, or cancel them`,
    { apiCode: "too_many_batches", shouldRetry: false },
  );
}

/** Reads a request for a batch. Throws 400. */
export function parseBatch(body: Readonly<Record<string, unknown>>) {
  const fields = new Fields(body);
  const inputFile = fields.string("input_file_id") ?? "";
  const given = fields.raw("endpoint", { enum: batchEndpoints });
  const endpoint = batchEndpoints.find((one) => one === given);
  if (endpoint === undefined) throw refusal("endpoint", batchEndpoints.join(" or "), given);
  const { window, seconds } = windowOf(fields);
  const metadata = metadataOf(fields);
  const outputExpiresAfter = outputExpiryOf(fields.object("output_expires_after"));
  const priority = jobPriorityOf(fields);
  const [unknown] = fields.unread();
  if (unknown !== undefined) throw badRequest(`a batch has no field ${quote(unknown)}`, unknown);
  return { inputFile, endpoint, window, seconds, metadata, outputExpiresAfter, priority };
}

/** POST /v1/batches */
export async function createBatch(call: Call, jobs: JobService): Promise<object> {
  const { store, runner, nowSeconds } = jobs;
  const asked = parseBatch(await call.readWork());
  const { inputFile, endpoint, window, seconds, metadata, outputExpiresAfter, priority } = asked;
  const file = store.file(call.tenant, inputFile);
  if (file === null) throw badRequest(`there is no file ${quote(inputFile)}`, "input_file_id");
  if (file.purpose !== "batch") {
    throw badRequest(`the file ${inputFile} has the purpose ${file.purpose}, not batch`, "input_file_id");
  }
  expectBatchRoom(jobs, call.tenant);
  const createdAt = nowSeconds();
  const batch: BatchRecord = {
    ...unreadBatch,
    id: newId("batch_"),
    owner: call.tenant,
    endpoint,
    completionWindow: window,
    inputFile,
    priority,
    metadata,
    outputExpiresAfter,
    createdAt,
    expiresAt: createdAt + seconds,
  };
  store.putBatch(batch);
  runner.begin(batch);
  return batchObject(batch, null);
}

/** GET /v1/batches */
export function listBatches({ request, tenant }: Call, { store, runner }: JobService) {
  const page = store.batches(tenant, pageQuery(new URL(request.url).searchParams, LISTED_MAX, LISTED));
  return pageObject(page, (batch) => batchObject(runner.current(batch), runner.pausedBy(batch)));
}

/** GET /v1/batches/{id}. Throws 404 if there is no such batch. */
export function readBatch({ rest, tenant }: Call, { store, runner }: JobService): object | null {
  const batch = batchOf(store.batch(tenant, rest), rest);
  return batchObject(runner.current(batch), runner.pausedBy(batch));
}

/** POST /v1/batches/{id}/cancel. Null if there is no such route. */
export function cancelBatch({ rest, tenant }: Call, { store, runner }: JobService): object | null {
  const [id = "", what, ...more] = rest.split("/");
  if (what !== "cancel" || more.length > 0) return null;
  const batch = batchOf(store.batch(tenant, id), id);
  return batchObject(runner.cancel(batch), null);
}

/**
 * A batch in OpenAI's format. `paused_by` is our own field: the reason why the batch does not advance at the
 * moment.
 */
export function batchObject(batch: BatchRecord, pausedBy: string | null) {
  const { usage } = batch;
  const errors = batch.faults.map(({ code, line, message, param }) => ({ code, line, message, param }));
  return {
    id: batch.id,
    object: "batch",
    endpoint: batch.endpoint,
    model: batch.model,
    errors: errors.length === 0 ? null : { object: "list", data: errors },
    input_file_id: batch.inputFile,
    completion_window: batch.completionWindow,
    status: batch.status,
    output_file_id: batch.outputFile,
    error_file_id: batch.errorFile,
    created_at: batch.createdAt,
    in_progress_at: batch.inProgressAt,
    expires_at: batch.expiresAt,
    finalizing_at: batch.finalizingAt,
    completed_at: batch.completedAt,
    failed_at: batch.failedAt,
    expired_at: batch.expiredAt,
    cancelling_at: batch.cancellingAt,
    cancelled_at: batch.cancelledAt,
    request_counts: { total: batch.total, completed: batch.completed, failed: batch.failed },
    usage: {
      input_tokens: usage.promptTokens,
      input_tokens_details: { cached_tokens: usage.cachedTokens },
      output_tokens: usage.completionTokens,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: usage.promptTokens + usage.completionTokens,
    },
    metadata: batch.metadata,
    paused_by: pausedBy,
  };
}

function batchOf(batch: BatchRecord | null, id: string): BatchRecord {
  if (batch !== null) return batch;
  throw new ApiError(404, "not_found_error", `there is no batch ${quote(id)}`, { param: "id" });
}

/** Reads the priority of a job: the lower number goes first. Throws 400. */
export function jobPriorityOf(fields: Fields): number {
  const { priorityMax } = requestLimits;
  return fields.integer("priority", { min: -priorityMax, max: priorityMax }) ?? 0;
}

/** Reads `completion_window`: OpenAI's "24h", or here any whole number of hours or days. `usual`: if there is none. */
export function windowOf(
  fields: Fields,
  usual?: string,
): { readonly window: string; readonly seconds: number } {
  const given = fields.raw("completion_window", { type: "string" }) ?? usual;
  const found = typeof given === "string" ? /^(\d{1,5})([hd])$/.exec(given) : null;
  const hours = found === null ? 0 : Number(found[1]) * (found[2] === "d" ? 24 : 1);
  if (hours < 1 || hours > HOURS_MAX) {
    throw refusal(
      "completion_window",
      `a number of hours or days, such as "24h" or "7d", up to ${HOURS_MAX} hours`,
      given,
    );
  }
  return { window: given as string, seconds: hours * 3600 };
}

function outputExpiryOf(fields: Fields | undefined): number | null {
  if (fields === undefined) return null;
  const anchor = fields.raw("anchor", { enum: ["created_at"] });
  if (anchor !== "created_at") throw refusal("output_expires_after.anchor", '"created_at"', anchor);
  return expirySeconds(fields.raw("seconds", { type: "integer" }), "output_expires_after.seconds");
}
