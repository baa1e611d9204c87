/** GET /v1/cache/text: the first words of a node of a prefix cache, if the operator allows that. */
import type { CacheSnapshot } from "../../scheduler/cache/cache-snapshot.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import { ApiError, badRequest, quote } from "../http/errors.ts";
import type { Call } from "../http/route.ts";

/** Decodes a node's first tokens. `caches`: the last snapshots by engine. Throws 400, 404 or 501. */
export function readCacheText(
  { request }: Call,
  caches: readonly (CacheSnapshot | null)[],
  tokenizer: Pick<Tokenizer, "decode">,
): object {
  const search = new URL(request.url).searchParams;
  const engine = wholeNumber(search, "engine");
  const id = wholeNumber(search, "node");
  const cache = caches[engine] ?? null;
  const at = cache?.nodes.findIndex(([node]) => node === id) ?? -1;
  if (cache === null || at < 0) throw missing(engine, id);
  if (cache.beginnings === null) throw textIsOff();
  const tokens = cache.beginnings[at]!;
  const [, , start, end] = cache.nodes[at]!;
  const text = tokenizer.decode(tokens, { skipSpecialTokens: false });
  return { object: "cache.text", engine, node: id, text, is_whole: tokens.length === end - start };
}

function wholeNumber(search: URLSearchParams, name: string): number {
  const given = search.get(name);
  if (given !== null && /^\d{1,10}$/.test(given)) return Number(given);
  throw badRequest(`${name} must be a whole number, but is ${quote(given)}`, name);
}

function missing(engine: number, id: number): ApiError {
  const message = `the last snapshot of the cache of engine ${engine} has no node ${id}; GET /state/stream?view=cache takes snapshots`;
  return new ApiError(404, "not_found_error", message, { param: "node" });
}

function textIsOff(): ApiError {
  const message =
    "this server shows no texts of its cache: --show-cached-text allows an operator to read them";
  return new ApiError(501, "invalid_request_error", message, { apiCode: "text_off", shouldRetry: false });
}
