/** Resolves a command's model argument to a path, after a download if necessary. */

import { existsSync } from "node:fs";
import type { MemoryPlan } from "../../gpu/memory.ts";
import { openLibrary } from "../../gpu/native.ts";
import { publishedText, readPublishedName } from "../../model/hub-cache.ts";
import type { Config } from "../config.ts";
import { chooseBackend } from "../engines/backend.ts";
import { planServing } from "../engines/plan.ts";
import { cachedAdapter, cachedModel, readModelName, resolveAdapter, resolveModel } from "../hub/resolve.ts";
import { hubSettings } from "../hub/settings.ts";
import { pullOutput } from "./pull-progress.ts";

/** Path of the model to serve; null for the one that comes with Bunting. */
export async function modelPath(model: string, config: Config): Promise<string>;
export async function modelPath(model: string | null, config: Config): Promise<string | null>;
export async function modelPath(model: string | null, config: Config): Promise<string | null> {
  if (model === null) return null;
  const output = pullOutput();
  try {
    const { signal } = new AbortController();
    return await resolveModel(model, { signal, events: output, plan: planOf(config) });
  } finally {
    output.onEnd();
  }
}

/** Path of a local or cached model; returns a name that is not in the cache unchanged. */
export function localModelPath(model: string): string {
  const published = existsSync(model) ? null : readModelName(model);
  return (published === null ? null : cachedModel(hubSettings().cache, published)) ?? model;
}

/** Path of an adapter, after a download if necessary. */
export async function adapterPath(adapter: string): Promise<string> {
  const output = pullOutput();
  try {
    const { signal } = new AbortController();
    return await resolveAdapter(adapter, { signal, events: output });
  } finally {
    output.onEnd();
  }
}

/** Path of a local or cached adapter; returns a name that is not in the cache unchanged. */
export function localAdapterPath(adapter: string): string {
  const published = existsSync(adapter) ? null : readPublishedName(adapter);
  return (published === null ? null : cachedAdapter(hubSettings().cache, published)) ?? adapter;
}

/**
 * Makes the model argument, as the user wrote it, the model's name for clients, unless another name is set.
 */
export function namedAsWritten(config: Config, model: string | null): Config {
  if (model === null || config.servedModelName.length > 0 || existsSync(model)) return config;
  const published = readPublishedName(model);
  if (published !== null) return { ...config, servedModelName: [publishedText(published)] };
  return readModelName(model) === null ? config : { ...config, servedModelName: [model] };
}

/**
 * Returns a function that plans the memory of a single model on this machine; null for simulated engines,
 * which load none.
 */
export function planOf(config: Config): ((path: string) => Promise<MemoryPlan>) | null {
  const { device } = config;
  if (device.kind === "simulated") return null;
  return async (path) => {
    const backend = await chooseBackend(device);
    const alone: Config = { ...config, draftModel: null, speculate: "off", lora: [] };
    return planServing(alone, backend, openLibrary(backend.library), path).memory;
  };
}
