/** The subset of OpenAI's Files that batches need. */

import { yieldIfSpent } from "../../../base/time-slice.ts";
import { defaultPaceLimits } from "../../http/body-pieces.ts";
import { ApiError, badRequest, quote } from "../../http/errors.ts";
import { readForm } from "../../http/multipart.ts";
import type { Call } from "../../http/route.ts";
import type { PageQuery } from "../../jobs/record-table.ts";
import { type FileRecord, isEnded, newId } from "../../jobs/records.ts";
import type { JobService } from "../../jobs/service.ts";
import { DiskFullError, StoreError } from "../../jobs/store-error.ts";
import type { Upload } from "../../jobs/upload.ts";

const LISTED_MAX = 10_000;
const FIELDS_MAX = 16;
const FIELD_BYTES_MAX = 4096;
const FILENAME_CHARACTERS_MAX = 255;
/** OpenAI's bounds of `expires_after`, in seconds. */
const EXPIRES_MIN = 3600;
const EXPIRES_MAX = 2_592_000;

/** POST /v1/files: writes the file to the disk while it arrives. */
export async function createFile(call: Call, jobs: JobService): Promise<object> {
  const { store, settings, nowSeconds } = jobs;
  let upload: Upload | null = null;
  const id = newId("file-");
  const createdAt = nowSeconds();
  let filename = "";
  try {
    const limits = {
      ...defaultPaceLimits,
      fileBytesMax: settings.fileBytesMax,
      fieldBytesMax: FIELD_BYTES_MAX,
      fieldsMax: FIELDS_MAX,
    };
    const fields = await readForm(call.request, limits, (field, name) => {
      if (field !== "file")
        throw badRequest(`the file comes in the field file, but this one is in ${quote(field)}`);
      filename = name.slice(0, FILENAME_CHARACTERS_MAX);
      const record = { id, owner: call.tenant, purpose: "batch", filename, createdAt } as const;
      const begun = store.upload(record);
      upload = begun;
      return {
        write: (part) => {
          expectStorage(jobs, part.length);
          begun.write(part);
        },
      };
    });
    const purpose = fields.get("purpose");
    if (purpose !== "batch") {
      throw badRequest(`purpose must be "batch", but is ${quote(purpose)}`, "purpose");
    }
    const expiresAfter = fileExpiry(fields) ?? settings.retentionSeconds;
    if (upload === null) throw badRequest("the form has no file: send one in the field file", "file");
    await (upload as Upload).sync();
    return fileObject((upload as Upload).finish(createdAt + expiresAfter));
  } catch (error) {
    (upload as Upload | null)?.discard();
    throw error;
  }
}

/** Throws 507 if files and results, with `bytes` more, would take more of the disk than they may. */
export function expectStorage({ store, settings }: JobService, bytes: number): void {
  const { storageBytesMax: max } = settings;
  const needed = store.bytes + bytes;
  if (needed <= max) return;
  throw noStorage(
    `files and results of all keys may take ${max} bytes of the disk (--batch-storage-gib), and would take ${needed}: delete files that nobody needs`,
  );
}

function noStorage(message: string): ApiError {
  return new ApiError(507, "server_error", message, {
    apiCode: "insufficient_storage",
    shouldRetry: false,
  });
}

function fileExpiry(fields: ReadonlyMap<string, string>): number | null {
  const seconds = fields.get("expires_after[seconds]");
  if (seconds === undefined) return null;
  return expirySeconds(Number(seconds), "expires_after[seconds]");
}

/** Validates an expiry in seconds. Throws 400 if it is outside OpenAI's bounds. */
export function expirySeconds(seconds: unknown, param: string): number {
  if (Number.isInteger(seconds) && Number(seconds) >= EXPIRES_MIN && Number(seconds) <= EXPIRES_MAX) {
    return Number(seconds);
  }
  const wanted = `a whole number between ${EXPIRES_MIN} and ${EXPIRES_MAX}`;
  throw badRequest(`${param} must be ${wanted}, but is ${quote(seconds)}`, param);
}

/** GET /v1/files */
export function listFiles({ request, tenant }: Call, { store }: JobService): object {
  const search = new URL(request.url).searchParams;
  const query = pageQuery(search, LISTED_MAX, LISTED_MAX);
  const purpose = search.get("purpose");
  const wanted: FileRecord[] = [];
  for (
    let after: string | null | undefined = query.after;
    after !== undefined && wanted.length <= query.limit;
  ) {
    const { records, hasMore } = store.files(tenant, { ...query, after, limit: LISTED_MAX });
    wanted.push(...records.filter((file) => purpose === null || file.purpose === purpose));
    after = hasMore ? records.at(-1)!.id : undefined;
  }
  const shown = wanted.slice(0, query.limit);
  return pageObject({ records: shown, hasMore: shown.length < wanted.length }, fileObject);
}

/** GET /v1/files/{id} and /v1/files/{id}/content. Null if there is no such route. */
export async function readFile(
  { rest, tenant }: Call,
  { store }: JobService,
): Promise<object | Response | null> {
  const [id = "", what, ...more] = rest.split("/");
  if (more.length > 0 || (what !== undefined && what !== "content")) return null;
  const file = fileOf(store.file(tenant, id), id);
  if (what === undefined) return fileObject(file);
  // Reads the whole file before it sends the first byte: damage anywhere becomes an error, not a broken-off
  // body.
  for (const _ of store.content(file)) await yieldIfSpent();
  return new Response(streamOf(store.content(file)), {
    headers: { "content-type": "application/octet-stream", "content-length": String(file.bytes) },
  });
}

/** DELETE /v1/files/{id} */
export function deleteFile({ rest, tenant }: Call, { store, nowSeconds }: JobService): object | null {
  const file = fileOf(store.file(tenant, rest), rest);
  const user = store.allBatches().find((batch) => batch.inputFile === file.id && !isEnded(batch));
  if (user !== undefined)
    throw badRequest(`the file ${file.id} is the input of ${user.id}, which has not ended`);
  store.deleteFile(file, nowSeconds());
  return { id: file.id, object: "file", deleted: true };
}

export function fileObject({ id, bytes, createdAt, expiresAt, filename, purpose }: FileRecord): object {
  return {
    id,
    object: "file",
    bytes,
    created_at: createdAt,
    ...(expiresAt === null ? {} : { expires_at: expiresAt }),
    filename,
    purpose,
    status: "processed",
    status_details: null,
  };
}

function fileOf(file: FileRecord | null, id: string): FileRecord {
  if (file !== null) return file;
  throw new ApiError(404, "not_found_error", `there is no file ${quote(id)}`, { param: "id" });
}

/** Stream that reads one piece per pull. */
export function streamOf(parts: Generator<Uint8Array>): ReadableStream<Uint8Array> {
  return new ReadableStream({
    pull(controller) {
      const part = parts.next();
      if (part.done === true) controller.close();
      else controller.enqueue(part.value);
    },
    cancel: () => void parts.return(undefined),
  });
}

/** Translates errors of the store to HTTP errors. */
export function storageError(error: unknown): unknown {
  if (error instanceof DiskFullError) return noStorage(error.message);
  if (error instanceof StoreError) {
    return new ApiError(500, "server_error", error.message, { apiCode: "store_damaged", shouldRetry: false });
  }
  return error;
}

/** Reads a list's parameters `after`, `limit` (by default `usual`) and `order`. Throws 400. */
export function pageQuery(search: URLSearchParams, limitMax: number, usual: number): PageQuery {
  const limit = limitOf(search, limitMax, usual);
  const order = search.get("order") ?? "desc";
  if (order !== "asc" && order !== "desc") {
    throw badRequest(`order must be "asc" or "desc", but is ${quote(order)}`, "order");
  }
  return { after: search.get("after"), limit, order };
}

/** Reads a list's parameter `limit`. Throws 400. */
export function limitOf(search: URLSearchParams, max: number, usual: number): number {
  const given = search.get("limit");
  const limit = given === null ? usual : Number(given);
  if (Number.isInteger(limit) && limit >= 1 && limit <= max) return limit;
  throw badRequest(`limit must be a whole number between 1 and ${max}, but is ${quote(given)}`, "limit");
}

/** A page in OpenAI's list format. */
export function pageObject<Record extends { readonly id: string }, Shown>(
  { records, hasMore }: { readonly records: readonly Record[]; readonly hasMore: boolean },
  objectOf: (record: Record) => Shown,
) {
  return {
    object: "list",
    data: records.map(objectOf),
    first_id: records[0]?.id ?? null,
    last_id: records.at(-1)?.id ?? null,
    has_more: hasMore,
  };
}
