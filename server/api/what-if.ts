/** POST /v1/what-if: the recorded requests, simulated as they were served and with changes. */
import { statSync } from "node:fs";
import type { Outcome, WhatIfAnswer, WhatIfQuestion } from "../cli/simulate/recorded/question.ts";
import { ApiError, badRequest, unavailable } from "../http/errors.ts";
import { adminsAlone, type Call, type Route } from "../http/route.ts";
import { Fields } from "./fields.ts";

/** Limits of one simulation. */
const CALLS_MAX = 500;
const BYTES_MAX = 256 * 2 ** 20;
const TIME_MS = 60_000;

const ENGINES_MAX = 64;
const TARGET_MS_MAX = 60_000;

/** Recording of a server. */
export interface Recorded {
  readonly path: string;
  /** Script of the thread that simulates it. */
  readonly workerUrl: string;
}

/** Replays a server's recording in simulation, with and without changes; one request at a time. */
export class WhatIf {
  readonly #recorded: Recorded | null;
  #isBusy = false;

  /** `recorded` null: the server records nothing. */
  constructor(recorded: Recorded | null) {
    this.#recorded = recorded;
  }

  route(): Route {
    const handler = adminsAlone((call) => this.#answer(call));
    return { method: "POST", path: "/v1/what-if", isPublic: false, handler };
  }

  async #answer(call: Call): Promise<object> {
    const { engines, tbtMs } = readChanges(await call.readWork());
    const changes = [
      ...(engines === undefined ? [] : [`engines=${engines}`]),
      ...(tbtMs === undefined ? [] : [`tbt-ms=${tbtMs}`]),
    ];
    const { path, workerUrl } = this.#expectRecording();
    if (this.#isBusy)
      throw unavailable("server_overloaded", "another simulation runs; one runs at a time", 5);
    this.#isBusy = true;
    try {
      const question = { path, changes: changes.join(","), callsMax: CALLS_MAX };
      const answer = await simulated(workerUrl, question, call.reply.signal);
      if (answer.kind === "refused") throw refused(answer.message);
      const { before, after, ...recorded } = answer;
      return {
        object: "what_if",
        changes: { engines: engines ?? null, tbt_ms: tbtMs ?? null },
        recorded: {
          calls: recorded.recorded,
          simulated_calls: recorded.calls,
          seconds: recorded.seconds,
          engines: recorded.engines,
        },
        before: outcomeJson(before),
        after: outcomeJson(after),
      };
    } finally {
      this.#isBusy = false;
    }
  }

  #expectRecording(): Recorded {
    if (this.#recorded === null) throw nothingRecorded();
    const { size } = statSync(this.#recorded.path);
    if (size <= BYTES_MAX) return this.#recorded;
    throw refused(
      `the recording has ${size} bytes, but ${BYTES_MAX} are simulated here at most: bunting simulate --replay does it`,
    );
  }
}

/** Reads the changes to simulate. Throws 400 if there are none. */
export function readChanges(body: Readonly<Record<string, unknown>>): {
  readonly engines: number | undefined;
  readonly tbtMs: number | undefined;
} {
  const fields = new Fields(body);
  const engines = fields.integer("engines", { min: 1, max: ENGINES_MAX });
  const tbtMs = fields.integer("tbt_ms", { min: 0, max: TARGET_MS_MAX });
  fields.expectAllRead();
  if (engines === undefined && tbtMs === undefined)
    throw badRequest("engines or tbt_ms must say what is changed", "engines");
  return { engines, tbtMs };
}

/** Simulates on a worker thread, which is terminated when the client disconnects or TIME_MS is over. */
async function simulated(
  workerUrl: string,
  question: WhatIfQuestion,
  signal: AbortSignal,
): Promise<WhatIfAnswer> {
  const worker = new Worker(workerUrl);
  const done = Promise.withResolvers<WhatIfAnswer>();
  const message = `the simulation took longer than ${TIME_MS / 1000} seconds: bunting simulate --replay does it without a limit`;
  const timer = setTimeout(() => done.resolve({ kind: "refused", message }), TIME_MS);
  const leave = (): void => done.resolve({ kind: "refused", message: "the client went away" });
  signal.addEventListener("abort", leave, { once: true });
  worker.onmessage = ({ data }: MessageEvent<WhatIfAnswer>) => done.resolve(data);
  worker.onerror = ({ message: reason }) => done.reject(new Error(reason));
  worker.postMessage(question);
  try {
    return await done.promise;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", leave);
    worker.terminate();
  }
}

function outcomeJson({ unanswered, firstToken, betweenTokens, whole, waiting, hitRate }: Outcome): object {
  return {
    unanswered,
    waiting_ms: waiting,
    first_token_ms: firstToken,
    between_tokens_ms: betweenTokens,
    total_ms: whole,
    hit_rate: hitRate,
  };
}

function nothingRecorded(): ApiError {
  const message =
    "nothing is recorded, so nothing can be simulated: bunting serve --record <file> records requests, prompts included";
  return new ApiError(501, "invalid_request_error", message, {
    apiCode: "recording_off",
    shouldRetry: false,
  });
}

function refused(message: string): ApiError {
  return new ApiError(422, "invalid_request_error", message, {
    apiCode: "not_simulated",
    shouldRetry: false,
  });
}
