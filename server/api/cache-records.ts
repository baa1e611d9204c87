/** Prefix-cache reports of recent requests, with the reasons for misses: GET /v1/requests/{id}/cache. */
import type { TokenId } from "../../base/token.ts";
import type { AdapterId } from "../../scheduler/core.ts";
import { type PromptPart, partAt } from "../../text/conversation/prompt-outline.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import { type CacheMiss, type CacheOutcome, endOf, foundTokens } from "../answer/cache-outcome.ts";
import { ApiError, quote } from "../http/errors.ts";
import type { Call } from "../http/route.ts";

/** Requests whose reports are kept, of all API keys together. */
const RECORDS_MAX = 1024;
/** Characters shown on each side of the first token that differs. */
const SIDE_CHARACTERS = 20;
/** Tokens that are decoded to get those characters. */
const SIDE_TOKENS = 24;

/** Request whose prompts engines have looked up in the prefix cache. */
export interface LookedUp {
  readonly tenant: string;
  readonly requestId: string;
  readonly adapter: AdapterId;
  readonly prompts: readonly (readonly TokenId[])[];
  readonly outcomes: readonly CacheOutcome[];
  /** Positions of a chat's messages in the prompt; absent: the request is not a chat. */
  readonly outline?: readonly PromptPart[];
}

/** Keeps the reports of the last requests. An API key sees its own. */
export class CacheRecords {
  /** Records by tenant and id, oldest first. */
  readonly #records = new Map<string, object>();

  /** Returns a function that keeps the reports of requests to one model or its adapters. */
  recorder(nameOf: (adapter: AdapterId) => string, tokenizer: Tokenizer): (request: LookedUp) => void {
    return (request) => {
      const key = keyOf(request.tenant, request.requestId);
      this.#records.delete(key);
      this.#records.set(key, recordOf(request, nameOf(request.adapter), tokenizer));
      if (this.#records.size > RECORDS_MAX) this.#records.delete(this.#records.keys().next().value!);
    };
  }

  /** GET /v1/requests/{id}/cache; null if there is no such route. Throws 404 if there is no report. */
  read({ rest, tenant }: Pick<Call, "rest" | "tenant">): object | null {
    const [id = "", what, ...more] = rest.split("/");
    if (what !== "cache" || more.length > 0) return null;
    const record = this.#records.get(keyOf(tenant, id));
    if (record !== undefined) return record;
    const message = `there is no account of a request ${quote(id)} of this key; the server keeps the last ${RECORDS_MAX} of all keys`;
    throw new ApiError(404, "not_found_error", message);
  }
}

/** Key of a record. It is unambiguous, since a tenant is hexadecimal or empty. */
function keyOf(tenant: string, id: string): string {
  return `${tenant} ${id}`;
}

function recordOf(
  { requestId, prompts, outcomes, outline }: LookedUp,
  model: string,
  tokenizer: Tokenizer,
): object {
  return {
    object: "request.cache",
    id: requestId,
    model,
    created: Math.floor(Date.now() / 1000),
    prompts: outcomes.map((outcome, index) => {
      const { promptTokens, misses, earlier, session } = outcome;
      return {
        prompt_tokens: promptTokens,
        found: foundTokens(outcome),
        ended: endOf(misses),
        session: session === null ? null : { id: session.id, parent: session.parent, by: session.by },
        misses: misses.map((miss) => ({
          reason: miss.reason,
          from: miss.from,
          tokens: miss.tokens,
          cost_ms: rounded(miss.costMs),
          ...(miss.reason === "differs"
            ? differenceOf(miss, prompts[index]!, outcome, tokenizer, outline)
            : {}),
        })),
        earlier:
          earlier === null
            ? null
            : {
                shared_tokens: earlier.shared,
                ended_ms_ago: earlier.endedAgoMs === null ? null : rounded(earlier.endedAgoMs),
                own_tokens_since: earlier.ownTokensSince,
              },
      };
    }),
  };
}

/** Message that holds the first differing token, and the text around the token: now, and in the earlier prompt. */
function differenceOf(
  { from }: CacheMiss,
  prompt: readonly TokenId[],
  { earlier }: CacheOutcome,
  tokenizer: Tokenizer,
  outline: readonly PromptPart[] | undefined,
): object {
  const around = (tokens: readonly TokenId[], place: number): string => {
    const text = (some: readonly TokenId[]): string => tokenizer.decode(some, { skipSpecialTokens: false });
    const before = text(tokens.slice(Math.max(0, place - SIDE_TOKENS), place));
    const after = text(tokens.slice(place, place + SIDE_TOKENS));
    return [...before].slice(-SIDE_CHARACTERS).join("") + [...after].slice(0, SIDE_CHARACTERS).join("");
  };
  const part = outline === undefined ? null : partAt(outline, bytesBefore(prompt, from, tokenizer));
  return {
    ...(part === null ? {} : { message: part.message, role: part.role }),
    now: around(prompt, from),
    ...(earlier === null ? {} : { was: around(earlier.around, earlier.at) }),
  };
}

function bytesBefore(tokens: readonly TokenId[], end: number, tokenizer: Tokenizer): number {
  let bytes = 0;
  for (let index = 0; index < end; index++) bytes += tokenizer.bytesOf(tokens[index]!).length;
  return bytes;
}

function rounded(ms: number): number {
  return Math.round(1000 * ms) / 1000;
}
