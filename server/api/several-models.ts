/** Routes about the models of a server with several. */

import { ModelNotFound } from "../http/errors.ts";
import type { Route } from "../http/route.ts";
import type { LoadedModel, ModelSet, ModelStatus } from "../models/model-set.ts";
import { namesWithAdapters, type ServedModel } from "../request/served-model.ts";
import {
  type ModelsDeps,
  psEntry,
  refuseToStore,
  showBody,
  storeRows,
  tagsBody,
  versionBody,
} from "./ollama/models.ts";
import { answerPull } from "./ollama/pull.ts";
import { modelEntry } from "./openai/models.ts";
import type { RespondLimits } from "./respond.ts";
import { decodedPath } from "./routes.ts";

/** Facts about a model, loaded or not. */
export interface ListedModel extends ModelsDeps {
  readonly name: string;
  readonly model: ServedModel;
  /** True if a GPU computes it. */
  readonly isOnGpu: boolean;
}

interface ListDeps {
  readonly set: Pick<ModelSet<LoadedModel>, "states">;
  readonly models: readonly ListedModel[];
  readonly limits: RespondLimits;
}

export function severalModelRoutes(
  { set, models, limits }: ListDeps,
  startedSeconds: number,
): readonly Route[] {
  const route = (method: Route["method"], path: string, handler: Route["handler"]): Route => ({
    method,
    path,
    isPublic: false,
    handler,
    takesAnyType: true,
  });
  const rows = models.flatMap((listed, index) =>
    namesWithAdapters(listed.model).map((name) => ({ name, listed, index })),
  );
  const names = rows.map(({ name }) => name);
  const all: ServedModel = { ...models[0]!.model, names };
  const entry = ({ name, listed, index }: (typeof rows)[number]): object => ({
    ...modelEntry(name, listed.model, startedSeconds),
    status: { value: statusWord(set.states()[index]!) },
  });
  const named = (given: string): (typeof rows)[number] => {
    const found = rows.find(({ name }) => name === given || `${name}:latest` === given);
    if (found === undefined) throw new ModelNotFound(given, names);
    return found;
  };
  const asked = (body: Readonly<Record<string, unknown>>): ListedModel => {
    const given = body.model ?? body.name;
    return typeof given === "string" ? named(given).listed : models[0]!;
  };
  return [
    route("GET", "/v1/models", () => ({ object: "list", data: rows.map(entry) })),
    route("GET", "/v1/models/{id}", ({ rest }) => entry(named(decodedPath(rest)))),
    route("GET", "/api/version", versionBody),
    route("GET", "/api/tags", () => ({
      models: models.flatMap((one) => tagsBody(one, startedSeconds).models),
    })),
    route("GET", "/api/ps", () => ({
      models: models.flatMap((one, index) => present(one, set.states()[index]!)),
    })),
    route("POST", "/api/show", async (call) => {
      const body = await call.readWork();
      return showBody(body, asked(body), startedSeconds);
    }),
    route("POST", "/api/pull", (call) => answerPull(call, { model: all, limits })),
    ...storeRows.map(([method, path]) => route(method, path, refuseToStore)),
  ];
}

/** Entries of `GET /api/ps` for a model and its adapters; empty for a model that is not loaded. */
function present(
  listed: ListedModel,
  { phase, bytes, users, usedMs, keptUntilMs, isPinned }: ModelStatus,
): readonly object[] {
  if (phase !== "in" && phase !== "leaving") return [];
  const isKept = isPinned || !Number.isFinite(keptUntilMs);
  const leftMs = users > 0 ? keptUntilMs - usedMs : keptUntilMs - performance.now();
  const expires = isKept ? null : new Date(Date.now() + Math.max(0, leftMs));
  const presence = { bytes, isOnGpu: listed.isOnGpu, expires };
  return namesWithAdapters(listed.model).map((name) => psEntry(name, listed, presence));
}

/** State in the values of llama-server's `/models`. */
function statusWord({ phase }: ModelStatus): "loaded" | "loading" | "unloaded" {
  if (phase === "loading") return "loading";
  return phase === "out" ? "unloaded" : "loaded";
}
