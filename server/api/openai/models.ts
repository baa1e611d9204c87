import { ModelNotFound } from "../../http/errors.ts";
import { namesWithAdapters, type ServedModel } from "../../request/served-model.ts";

/**
 * GET /v1/models. Each name of the model is an entry, whose `root` is the model's id, and so is each adapter, whose
 * `root` is its path and whose `parent` is the model. `createdSeconds`: start of serving.
 */
export function modelList(served: ServedModel, createdSeconds: number): object {
  return {
    object: "list",
    data: namesWithAdapters(served).map((name) => modelEntry(name, served, createdSeconds)),
  };
}

/** GET /v1/models/{id} */
export function modelById(name: string, served: ServedModel, createdSeconds: number): object {
  const names = namesWithAdapters(served);
  if (!names.includes(name)) throw new ModelNotFound(name, names);
  return modelEntry(name, served, createdSeconds);
}

/** Entry of a name of the model or of an adapter, with the fields of OpenAI's, vLLM's and Anthropic's lists. */
export function modelEntry(name: string, served: ServedModel, createdSeconds: number): object {
  const adapter = served.adapters?.get(name);
  return {
    id: name,
    object: "model",
    created: createdSeconds,
    owned_by: "bunting",
    root: adapter?.path ?? served.names[0],
    parent: adapter === undefined ? null : served.names[0],
    max_model_len: served.contextMax,
    type: "model",
    display_name: name,
    created_at: new Date(createdSeconds * 1000).toISOString(),
    max_input_tokens: served.contextMax,
    max_tokens: served.contextMax,
    permission: [],
  };
}
