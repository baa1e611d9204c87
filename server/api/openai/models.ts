import { ModelNotFound } from "../../http/errors.ts";
import type { ServedModel } from "../../request/served-model.ts";

/**
 * GET /v1/models. Each name of the model is an entry, whose `root` is the model's id. `createdSeconds`: start
 * of serving.
 */
export function modelList(served: ServedModel, createdSeconds: number): object {
  return { object: "list", data: served.names.map((name) => modelEntry(name, served, createdSeconds)) };
}

/** GET /v1/models/{id} */
export function modelById(name: string, served: ServedModel, createdSeconds: number): object {
  if (!served.names.includes(name)) throw new ModelNotFound(name, served.names);
  return modelEntry(name, served, createdSeconds);
}

/** Entry of one of the model's names. */
export function modelEntry(name: string, served: ServedModel, createdSeconds: number): object {
  return {
    id: name,
    object: "model",
    created: createdSeconds,
    owned_by: "bunting",
    root: served.names[0],
    parent: null,
    max_model_len: served.contextMax,
    permission: [],
  };
}
