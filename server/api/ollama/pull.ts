/** POST /api/pull: brings a published model to the cache, with Ollama's lines of progress. */

import { ApiError } from "../../http/errors.ts";
import type { Call } from "../../http/route.ts";
import { ResponseStream } from "../../http/stream.ts";
import { HubError } from "../../hub/hub-error.ts";
import { type PullEvents, type PullProgress, pullModel } from "../../hub/pull.ts";
import { readModelName, unknownName } from "../../hub/resolve.ts";
import { hubSettings } from "../../hub/settings.ts";
import { namesWithAdapters, type ServedModel } from "../../request/served-model.ts";
import { reportIgnored } from "../exchange.ts";
import { Fields } from "../fields.ts";
import type { RouteDeps } from "../route-deps.ts";
import { ndjson } from "./codec.ts";
import { nameOf } from "./schema.ts";

/** Time between two lines about one file. */
const LINE_MS = 200;

type Deps = Pick<RouteDeps, "model" | "limits">;

/** Reads a request to fetch a model. */
export function parsePull(fields: Fields): {
  readonly given: string | undefined;
  readonly isStream: boolean;
} {
  const given = fields.string("model") ?? fields.string("name");
  return { given, isStream: fields.boolean("stream") ?? true };
}

/**
 * POST /api/pull. A served model is present already, and a program is refused. Any other needs a name on the
 * hub (else 404) and an operator's key (else 403). Throws 502 if the hub fails.
 */
export async function answerPull(call: Call, deps: Deps): Promise<unknown> {
  const fields = new Fields(await call.readWork());
  const { given, isStream } = parsePull(fields);
  reportIgnored(call, fields.unread());
  const refusal = refusalOf(fields, deps.model);
  if (refusal === null) return { status: "success" };
  if (given === undefined || refusal.status !== 404) throw refusal;
  const model = readModelName(given.replace(/:latest$/, ""));
  if (model === null) {
    const names = namesWithAdapters(deps.model).join(", ");
    throw new ApiError(404, "not_found_error", `${unknownName(given.slice(0, 100))} Served here: ${names}.`);
  }
  const run = (signal: AbortSignal, events: PullEvents) =>
    pullModel(model, { settings: hubSettings(), signal, events, plan: null });
  if (!call.isAdmin) throw keyNeeded();
  return isStream ? pullStream(call, deps, run) : await pullWhole(call, run);
}

function keyNeeded(): ApiError {
  const message =
    "models are fetched for a key that the server was given with --admin-key or --admin-key-file, because they fill its disk";
  return new ApiError(403, "permission_error", message, { apiCode: "admin_key_needed" });
}

/** The refusal of a name that is not served; null if it is served. */
function refusalOf(fields: Fields, model: ServedModel): ApiError | null {
  try {
    nameOf(fields, model);
    return null;
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
}

type Run = (signal: AbortSignal, events: PullEvents) => Promise<string>;

async function pullWhole({ request }: Call, run: Run): Promise<object> {
  try {
    await run(request.signal, { onSize: () => {}, onProgress: () => {} });
    return { status: "success" };
  } catch (error) {
    throw asApiError(error);
  }
}

function pullStream({ reply }: Call, { limits }: Deps, run: Run): Response {
  const stop = new AbortController();
  let isPaused = false;
  const stream = new ResponseStream(reply, ndjson, limits, {
    pause: () => {
      isPaused = true;
    },
    resume: () => {
      isPaused = false;
    },
    abort: () => stop.abort(new Error("the client is gone")),
  });
  const tell = (line: object): void => stream.write(`${JSON.stringify(line)}\n`);
  const lines = new ProgressLines((line) => {
    if (!isPaused) tell(line);
  });
  tell({ status: "pulling manifest" });
  run(stop.signal, { onSize: () => {}, onProgress: (progress) => lines.take(progress) })
    .then(
      () => {
        for (const status of ["verifying sha256 digest", "writing manifest", "success"]) tell({ status });
      },
      (error: unknown) => tell({ error: asApiError(error).message }),
    )
    .finally(() => stream.end());
  return stream.response();
}

/** Lines about the files, a few per second and one at each file's end. */
class ProgressLines {
  readonly #write: (line: object) => void;
  #writtenMs = -Infinity;

  constructor(write: (line: object) => void) {
    this.#write = write;
  }

  take({ file, fileDoneBytes }: PullProgress): void {
    const nowMs = performance.now();
    if (fileDoneBytes < file.bytes && nowMs - this.#writtenMs < LINE_MS) return;
    this.#writtenMs = nowMs;
    const digest = `${file.hash.kind === "sha256" ? "sha256" : "sha1"}:${file.hash.hex}`;
    const status = `pulling ${file.hash.hex.slice(0, 12)}`;
    this.#write({ status, digest, total: file.bytes, completed: fileDoneBytes });
  }
}

function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const isHubs = error instanceof HubError;
  if (!isHubs) console.error(error);
  const message = isHubs ? error.message : "the model was not fetched: an error that the server's log names";
  return new ApiError(isHubs ? 502 : 500, "api_error", message, { shouldRetry: false });
}
