import type { BodyLimits } from "./body.ts";
import { defaultPaceLimits } from "./body-pieces.ts";
import type { JsonLimits } from "./json/parse.ts";
import type { KeepLimits } from "./kept-streams.ts";

export interface HttpLimits extends BodyLimits, KeepLimits {
  /** Bytes of names and values of all headers. The parser refuses a head of 16 KiB. */
  readonly headerBytesMax: number;
  readonly headersMax: number;
  /**
   * Time that a stream waits for admission before its headers are sent. Refusals within it have their own
   * status.
   */
  readonly commitMs: number;
}

export const defaultJsonLimits: JsonLimits = Object.freeze({
  jsonDepthMax: 128,
  jsonKeysMax: 100_000,
  jsonNamesMax: 10_000,
  jsonItemsMax: 2 ** 20,
});

export const defaultHttpLimits: HttpLimits = Object.freeze({
  bodyBytesMax: 32 * 1024 * 1024,
  bodiesBytesMax: 256 * 1024 * 1024,
  ...defaultJsonLimits,
  ...defaultPaceLimits,
  headerBytesMax: 12 * 1024,
  headersMax: 100,
  commitMs: 5_000,
  keepAliveMs: 10_000,
  pendingBytesMax: 1024 * 1024,
  stallMs: 60_000,
  readerlessMs: 60_000,
  endedKeptMs: 300_000,
  keptStreamsMax: 64,
  keptBytesMax: 32 * 1024 * 1024,
});
