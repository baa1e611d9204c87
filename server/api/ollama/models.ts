/** Ollama's routes about models. */
import { createHash } from "node:crypto";
import { ApiError } from "../../http/errors.ts";
import type { Route } from "../../http/route.ts";
import type { PromptServices } from "../../request/prompt.ts";
import {
  adapterOf,
  type ModelAbout,
  namesWithAdapters,
  type ServedModel,
} from "../../request/served-model.ts";
import { Fields } from "../fields.ts";
import { canThink } from "../thinking.ts";
import { nameOf } from "./schema.ts";

/**
 * Version of Ollama's API that the server implements. Clients compare it with the oldest version that they
 * support.
 */
const ollamaVersion = "0.12.11";

export interface ModelsDeps extends Pick<PromptServices, "model" | "template"> {
  readonly about: ModelAbout;
}

/** GET /api/tags: an entry for each name of the model, and for each adapter. */
export function tagsBody(deps: ModelsDeps, startedSeconds: number): { readonly models: readonly object[] } {
  const modified_at = new Date(startedSeconds * 1000).toISOString();
  return { models: namesWithAdapters(deps.model).map((name) => ({ ...entryOf(name, deps), modified_at })) };
}

/**
 * Expiry of a model that stays loaded, in years from now, as in Ollama. It is before the year 9999, whose end some
 * clients cannot convert to every time zone.
 */
const STAYS_YEARS = 292;

function expiry(expires: Date | null): string {
  const stays = new Date();
  stays.setUTCHours(0, 0, 0, 0);
  stays.setUTCFullYear(stays.getUTCFullYear() + STAYS_YEARS);
  return (expires ?? stays).toISOString();
}

/** GET /api/ps of a server with one model: the same entries as loaded models, which never expire. */
export function psBody(deps: ModelsDeps): object {
  const { model } = deps;
  const stays = { size_vram: 0, context_length: model.contextMax, expires_at: expiry(null) };
  return { models: namesWithAdapters(model).map((name) => ({ ...entryOf(name, deps), ...stays })) };
}

/** Memory of a loaded model, and the time at which it is unloaded (`expires`); null: it stays loaded. */
export interface Presence {
  readonly bytes: number;
  readonly isOnGpu: boolean;
  readonly expires: Date | null;
}

/** Entry of GET /api/ps for one of several models: `size` is its memory. */
export function psEntry(name: string, deps: ModelsDeps, { bytes, isOnGpu, expires }: Presence): object {
  return {
    ...entryOf(name, deps),
    size: bytes,
    size_vram: isOnGpu ? bytes : 0,
    context_length: deps.model.contextMax,
    expires_at: expiry(expires),
  };
}

/** GET /api/version */
export function versionBody(): object {
  return { version: ollamaVersion };
}

/** Routes that change Ollama's store of models. */
export const storeRows: readonly (readonly [Route["method"], string])[] = [
  ["POST", "/api/create"],
  ["POST", "/api/blobs/{digest}"],
  ["POST", "/api/copy"],
  ["POST", "/api/push"],
  ["DELETE", "/api/delete"],
];

/** Throws 501 for changes to a store of models, which this server lacks. */
export function refuseToStore(): never {
  throw new ApiError(
    501,
    "invalid_request_error",
    "models are not made, copied, sent or deleted here: the server has those that it was started with",
  );
}

/** POST /api/show */
export function showBody(
  body: Readonly<Record<string, unknown>>,
  { model, template, about }: ModelsDeps,
  startedSeconds: number,
): object {
  const name = nameOf(new Fields(body), model);
  const { family, parameters, layers, hidden } = about;
  const knows = (word: string): boolean => template?.mentions(word, true) === true;
  return {
    modelfile: "",
    parameters: "",
    template: template?.sourceText(false) ?? "",
    details: detailsOf(about, parentOf(name, model)),
    model_info: {
      "general.architecture": family,
      "general.basename": name,
      "general.parameter_count": parameters,
      [`${family}.context_length`]: model.contextMax,
      [`${family}.embedding_length`]: hidden,
      [`${family}.block_count`]: layers,
    },
    capabilities: about.isHeadless
      ? ["embedding"]
      : [
          "completion",
          ...(knows("tools") ? ["tools"] : []),
          ...(canThink(template) ? ["thinking"] : []),
          ...((model.fill ?? null) === null ? [] : ["insert"]),
        ],
    modified_at: new Date(startedSeconds * 1000).toISOString(),
  };
}

function entryOf(name: string, { model, about, template }: ModelsDeps): object {
  const adapter = model.adapters?.get(name);
  // Clients identify models by the digest, and cache /api/show by it. Here it hashes facts, not the files.
  const digest = createHash("sha256")
    .update(JSON.stringify([name, about, template?.sourceText(false), ...(adapter ? [adapter.id] : [])]))
    .digest("hex");
  const size = about.weightsBytes + (adapter?.bytes ?? 0);
  return { name, model: name, size, digest, details: detailsOf(about, parentOf(name, model)) };
}

/** The model of an adapter's name; "" for a name of the model itself. */
function parentOf(name: string, model: ServedModel): string {
  return adapterOf(name, model) === 0 ? "" : model.names[0]!;
}

function detailsOf({ family, format, parameters, storedType }: ModelAbout, parent: string): object {
  return {
    parent_model: parent,
    format,
    family,
    families: [family],
    parameter_size: inBillions(parameters),
    quantization_level: storedType,
  };
}

/** A count in Ollama's notation: "7.6B", "494.0M". */
function inBillions(count: number): string {
  if (count >= 1e9) return `${(count / 1e9).toFixed(1)}B`;
  return count >= 1e6 ? `${(count / 1e6).toFixed(1)}M` : `${(count / 1e3).toFixed(1)}K`;
}
