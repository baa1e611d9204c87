/** Anthropic's Message Batches: POST /v1/messages/batches and its related routes. */

import { yieldIfSpent } from "../../../base/time-slice.ts";
import { expectJsonBody } from "../../http/body.ts";
import { bodyPieces, defaultPaceLimits } from "../../http/body-pieces.ts";
import { ApiError, badRequest, quote } from "../../http/errors.ts";
import { parseJson } from "../../http/json/parse.ts";
import type { Call } from "../../http/route.ts";
import { LineChecker } from "../../jobs/input.ts";
import { LineFault } from "../../jobs/line-form.ts";
import { type BatchRecord, isEnded, MESSAGES, newId, unreadBatch } from "../../jobs/records.ts";
import type { JobService } from "../../jobs/service.ts";
import type { Upload } from "../../jobs/upload.ts";
import { Fields, objectKind, refusal } from "../fields.ts";
import { expectBatchRoom, jobPriorityOf, windowOf } from "../openai/batches.ts";
import { expectStorage, limitOf, streamOf } from "../openai/files.ts";
import { messageForm } from "./line-form.ts";
import { RequestSplitter, tooLarge } from "./request-splitter.ts";

const ID_PREFIX = "msgbatch_";
const LISTED = 20;
const LISTED_MAX = 1000;
/** Anthropic's time for a batch. */
const WINDOW = "24h";
const LINE_END = Buffer.from("\n");

/** Reads the body of a request for a batch. Throws 400. */
export function parseMessageBatch(body: Readonly<Record<string, unknown>>, requestsMax: number) {
  const fields = new Fields(body);
  const requests = fields.list("requests", requestsMax, objectKind) ?? [];
  if (requests.length === 0) throw refusal("requests", "a list of at least one request", body.requests);
  const { window, seconds } = windowOf(fields, WINDOW);
  const priority = jobPriorityOf(fields);
  fields.expectAllRead();
  return { requests, window, seconds, priority };
}

/** POST /v1/messages/batches: writes the requests to the disk while they arrive, and checks each of them. */
export async function createMessageBatch(call: Call, jobs: JobService): Promise<object> {
  const { store, runner, settings, nowSeconds } = jobs;
  const { tenant: owner, request } = call;
  call.expectWork();
  expectJsonBody(request);
  expectBatchRoom(jobs, owner);
  const id = newId(ID_PREFIX);
  const createdAt = nowSeconds();
  const filename = `${id}_requests.jsonl`;
  const upload = store.upload({ id: newId("file-"), owner, purpose: "batch", filename, createdAt });
  try {
    const { rest, total, model } = await writtenRequests(request, upload, jobs);
    const { window, seconds, priority } = parseMessageBatch(rest, settings.linesMax);
    await upload.sync();
    call.expectWork();
    expectBatchRoom(jobs, owner);
    const inputFile = upload.finish(createdAt + settings.retentionSeconds).id;
    const batch: BatchRecord = {
      ...unreadBatch,
      id,
      owner,
      endpoint: MESSAGES,
      completionWindow: window,
      inputFile,
      model,
      total,
      priority,
      metadata: null,
      outputExpiresAfter: null,
      createdAt,
      expiresAt: createdAt + seconds,
    };
    store.putBatch(batch);
    runner.begin(batch);
    return messageBatchObject(batch);
  } catch (error) {
    upload.discard();
    throw error;
  }
}

/** Writes each request of the body as a line. Returns the rest of the body. Throws 400, 404 or 413. */
async function writtenRequests(request: Request, upload: Upload, jobs: JobService) {
  const { settings, runner } = jobs;
  const { limits } = runner;
  const checker = new LineChecker({ form: messageForm, models: runner.models, limits });
  let total = 0;
  let lines: Uint8Array[] = [];
  const splitter = new RequestSplitter(limits.lineBytesMax, (bytes) => {
    if (total === limits.linesMax)
      throw badRequest(
        `requests may hold ${limits.linesMax} requests at most (--batch-lines-max), but holds more`,
        "requests",
      );
    total += 1;
    expectValid(checker, total, bytes);
    lines.push(bytes, LINE_END);
  });
  for await (const piece of bodyPieces(request, defaultPaceLimits)) {
    splitter.write(piece);
    const bytes = Buffer.concat(lines);
    lines = [];
    const { fileBytesMax } = settings;
    if (upload.bytes + bytes.length > fileBytesMax)
      throw tooLarge(`a batch may have ${fileBytesMax} bytes at most (--batch-file-mib), but has more`);
    expectStorage(jobs, bytes.length);
    upload.write(bytes);
    await yieldIfSpent();
  }
  const rest = parseJson(splitter.end(), limits);
  if (typeof rest !== "object" || rest === null || Array.isArray(rest))
    throw badRequest(`the request body must be a JSON object, but is ${quote(rest)}`);
  return { rest: rest as Readonly<Record<string, unknown>>, total, model: checker.model };
}

/** Throws 400, or 404 for a model that is not served. */
function expectValid(checker: LineChecker, line: number, bytes: Uint8Array): void {
  try {
    checker.check(line, 0, bytes);
  } catch (error) {
    if (!(error instanceof LineFault)) throw error;
    const path = `requests[${line - 1}]`;
    const message = error.message.startsWith(path) ? error.message : `${path}: ${error.message}`;
    if (error.code === "model_not_found") throw new ApiError(404, "not_found_error", message);
    throw badRequest(message, path);
  }
}

/** GET /v1/messages/batches */
export function listMessageBatches(call: Call, { store, runner }: JobService): object {
  const search = new URL(call.request.url).searchParams;
  const limit = limitOf(search, LISTED_MAX, LISTED);
  const after = search.get("after_id");
  const before = search.get("before_id");
  if (after !== null && before !== null)
    throw badRequest("a page is after one batch or before one: after_id and before_id exclude each other");
  const query = { limit, idPrefix: ID_PREFIX };
  const { records, hasMore } =
    before === null
      ? store.batches(call.tenant, { ...query, after, order: "desc" })
      : store.batches(call.tenant, { ...query, after: before, order: "asc" });
  const data = (before === null ? records : records.toReversed()).map((batch) =>
    messageBatchObject(runner.current(batch)),
  );
  return { data, has_more: hasMore, first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null };
}

/** GET /v1/messages/batches/{id} and /v1/messages/batches/{id}/results; null if there is no such route. */
export async function readMessageBatch(call: Call, jobs: JobService): Promise<object | null> {
  const [id = "", what, ...more] = call.rest.split("/");
  if (more.length > 0 || (what !== undefined && what !== "results")) return null;
  const batch = messageBatchOf(call.tenant, id, jobs);
  if (what === undefined) return messageBatchObject(batch);
  if (!isEnded(batch)) throw badRequest(`the batch ${id} has no results yet: it has not ended`);
  if (batch.archivedAt !== undefined)
    throw new ApiError(404, "not_found_error", `the results of the batch ${id} are deleted`);
  // Reads all lines before it sends the first byte: damage anywhere becomes an error, not a broken-off body.
  let bytes = 0;
  for (const line of resultLines(batch, jobs)) {
    bytes += line.length;
    await yieldIfSpent();
  }
  return new Response(streamOf(resultLines(batch, jobs)), {
    headers: { "content-type": "application/x-jsonl", "content-length": String(bytes) },
  });
}

/** Results of a batch in order of its requests. A batch that failed has an error for each request without one. */
function* resultLines({ id, faults }: BatchRecord, { store }: JobService): Generator<Uint8Array> {
  const message = faults[0]?.message ?? "the batch failed";
  for (const [line, result] of store.resultLines(id)) {
    const text = result ?? messageForm.unanswered(line, "input_damaged", message).result;
    yield Buffer.from(`${text}\n`);
  }
}

/** POST /v1/messages/batches/{id}/cancel; null if there is no such route. */
export function cancelMessageBatch(call: Call, jobs: JobService): object | null {
  const [id = "", what, ...more] = call.rest.split("/");
  if (what !== "cancel" || more.length > 0) return null;
  return messageBatchObject(jobs.runner.cancel(messageBatchOf(call.tenant, id, jobs)));
}

/** DELETE /v1/messages/batches/{id} */
export function deleteMessageBatch({ rest: id, tenant }: Call, jobs: JobService): object {
  const batch = messageBatchOf(tenant, id, jobs);
  if (!isEnded(batch)) throw badRequest(`the batch ${id} has not ended: cancel it first`);
  jobs.store.deleteBatch(batch);
  return { id, type: "message_batch_deleted" };
}

function messageBatchOf(tenant: string, id: string, { store, runner }: JobService): BatchRecord {
  const batch = store.batch(tenant, id);
  if (batch?.endpoint === MESSAGES) return runner.current(batch);
  throw new ApiError(404, "not_found_error", `there is no batch of messages ${quote(id)}`);
}

/**
 * A batch in Anthropic's format. Its requests count as processing until all of them have a result. `results_url` is
 * relative: behind a proxy the server does not know its clients' scheme, port and path, which they put before it.
 */
function messageBatchObject(batch: BatchRecord) {
  const { id, status, total, completed, unrun = 0, createdAt, expiresAt, cancellingAt, archivedAt } = batch;
  const endedAt = batch.completedAt ?? batch.cancelledAt ?? batch.expiredAt ?? batch.failedAt;
  const isOver = endedAt !== null;
  const hasResults = isOver && archivedAt === undefined;
  return {
    id,
    type: "message_batch",
    processing_status: isOver ? "ended" : status === "cancelling" ? "canceling" : "in_progress",
    request_counts: {
      processing: isOver ? 0 : total,
      succeeded: isOver ? completed : 0,
      errored: isOver ? total - completed - unrun : 0,
      canceled: isOver && status === "cancelled" ? unrun : 0,
      expired: isOver && status !== "cancelled" ? unrun : 0,
    },
    created_at: timeOf(createdAt),
    expires_at: timeOf(expiresAt),
    ended_at: timeOf(endedAt),
    cancel_initiated_at: timeOf(cancellingAt),
    archived_at: timeOf(archivedAt ?? null),
    results_url: hasResults ? `${MESSAGES}/batches/${id}/results` : null,
  };
}

function timeOf(seconds: number | null): string | null {
  return seconds === null ? null : new Date(seconds * 1000).toISOString();
}
