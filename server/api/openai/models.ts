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

/** Entry of one of the model's names, with the fields of OpenAI's, vLLM's and Anthropic's lists. */
export function modelEntry(name: string, served: ServedModel, createdSeconds: number): object {
  return {
    id: name,
    object: "model",
    created: createdSeconds,
    owned_by: "bunting",
    root: served.names[0],
    parent: null,
    max_model_len: served.contextMax,
    type: "model",
    display_name: name,
    created_at: new Date(createdSeconds * 1000).toISOString(),
    max_input_tokens: served.contextMax,
    max_tokens: served.contextMax,
    permission: [],
  };
}
