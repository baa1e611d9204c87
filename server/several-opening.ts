/** Parts of a server of several models that may refuse its start. */

import { formatBytes, plannedBytes, reserveOf } from "../gpu/memory.ts";
import { openLibrary } from "../gpu/native.ts";
import { SessionTable } from "../scheduler/session/session-table.ts";
import type { ListedModel } from "./api/several-models.ts";
import { type Config, ConfigError } from "./config.ts";
import { chooseBackend } from "./engines/backend.ts";
import { withDraftPath } from "./engines/draft-plan.ts";
import type { RunningEngines } from "./engines/start.ts";
import type { Lifecycle } from "./http/lifecycle.ts";
import type { Telemetry } from "./http/telemetry.ts";
import type { ModelSetting } from "./models/model-settings.ts";
import {
  factsFor,
  openText,
  type Prepared,
  prepareNative,
  prepareSimulated,
  servedModelOf,
} from "./open-model.ts";
import { addAccounts, addFirstParts, addFront, Parts } from "./opening.ts";
import { aboutOf } from "./request/served-model.ts";
import type { StartEvents } from "./running-server.ts";

/** State of a model that outlives its engines, which are loaded and unloaded. */
export interface OpenModel {
  readonly setting: ModelSetting;
  readonly prepared: Prepared;
  readonly bytes: number;
  readonly text: ReturnType<typeof openText>;
  /** Computed once: to compute them at each load would delay the streams of other models. */
  readonly facts: ReturnType<typeof factsFor>;
  readonly listed: ListedModel;
  readonly sessions: SessionTable;
  /** Running engines; null while the model is not loaded. */
  engines: RunningEngines | null;
  /** null before the first load. */
  telemetry: Telemetry | null;
}

/** Name of the default folder of jobs. */
export const JOBS_NAME = "several models";

/** Parts of a server with all models of `settings`. */
export function severalOpening(
  config: Config,
  settings: readonly ModelSetting[],
  events: Pick<StartEvents, "modelPath" | "onModels">,
  lifecycle: Lifecycle,
) {
  const parts = new Parts();
  const { guarded, keys, predecessor } = addFirstParts(parts, config);
  const memoryBytes = parts.add(async () => (config.memory > 0 ? config.memory : await freeBytes(config)));
  const models = parts.add(
    async () => {
      const limitBytes = await memoryBytes();
      const opened: OpenModel[] = [];
      for (const setting of settings) {
        const pathOf = async (model: string, of: Config): Promise<string> =>
          (await events.modelPath?.(model, of)) ?? model;
        const own = await withDraftPath(setting.config, pathOf);
        const path = await pathOf(setting.path, own);
        opened.push(await openModel({ ...setting, config: own, path }, limitBytes, settings.length));
      }
      expectFit(opened, limitBytes);
      events.onModels?.(
        opened.map(({ setting, prepared, bytes, listed }) => ({
          name: setting.name,
          family: listed.about.family,
          contextMax: prepared.contextMax,
          bytes,
          adapters: [...prepared.adapters.keys()],
          isPinned: setting.isPinned,
        })),
        limitBytes,
      );
      return opened;
    },
    (opened) => {
      for (const { text } of opened) text.encoder.close();
    },
  );
  const front = addFront(parts, config, lifecycle, predecessor, () => JOBS_NAME);
  const accounts = addAccounts(parts, config, keys);
  return { parts, guarded, keys, predecessor, memoryBytes, models, ...front, ...accounts };
}

/** Memory for all models by default: free memory less the reserve; on GPUs that of the fullest one. */
async function freeBytes({ device }: Config): Promise<number> {
  if (device.kind === "simulated") return Number.POSITIVE_INFINITY;
  const { library, gpus } = await chooseBackend(device);
  const native = openLibrary(library);
  const free =
    gpus === null
      ? native.machineProbe().memoryFreeBytes
      : Math.min(...gpus.map((gpu) => native.deviceProbe(gpu).memoryFreeBytes));
  return free - reserveOf(free);
}

/**
 * Plans a model and opens its text. By default its KV cache takes what an equal share of the memory leaves for
 * it, or one full context if the share is too small.
 */
async function openModel(setting: ModelSetting, memoryBytes: number, count: number): Promise<OpenModel> {
  const { name, path, config } = setting;
  const { device } = config;
  try {
    const backend = device.kind === "simulated" ? null : await chooseBackend(device);
    const share = { limitBytes: memoryBytes / count, isLean: false };
    const lean = { limitBytes: Number.POSITIVE_INFINITY, isLean: true };
    let bytes = 0;
    const note = (plan: Parameters<StartEvents["onPlan"]>[0]): void => {
      bytes = plannedBytes(plan.memory);
    };
    const prepared =
      device.kind === "simulated"
        ? prepareSimulated(config, path, device.engines)
        : prepareNative(config, path, backend!, note, [share, lean]);
    if (device.kind === "simulated") bytes = prepared.folder.weightFilesBytes;
    const text = openText(prepared.folder.dir, config);
    const own = servedModelOf(config, prepared, text);
    const { temperature, "top-k": topK, "top-p": topP, "min-p": minP } = setting.sampling;
    const defaults = own.generationDefaults;
    const model = {
      ...own,
      keepsAlive: true,
      generationDefaults: {
        ...defaults,
        temperature: temperature ?? defaults.temperature,
        topK: topK ?? defaults.topK,
        topP: topP ?? defaults.topP,
        minP: minP ?? defaults.minP,
        repetitionPenalty: setting.sampling["repetition-penalty"] ?? defaults.repetitionPenalty,
      },
    };
    const about = aboutOf(prepared.folder);
    const listed = { name, model, template: text.template, about, isOnGpu: (backend?.gpus ?? null) !== null };
    const facts = factsFor(config, prepared, text);
    const sessions = new SessionTable();
    return { setting, prepared, bytes, text, facts, listed, sessions, engines: null, telemetry: null };
  } catch (error) {
    throw new ConfigError(`The model ${name} cannot be served: ${(error as Error).message}`);
  }
}

/** Throws ConfigError if a model can never be loaded beside the pinned ones. */
function expectFit(models: readonly OpenModel[], memoryBytes: number): void {
  const pinned = models.filter(({ setting }) => setting.isPinned);
  const pinnedBytes = pinned.reduce((sum, { bytes }) => sum + bytes, 0);
  for (const { setting, bytes } of models) {
    const besideBytes = setting.isPinned ? pinnedBytes - bytes : pinnedBytes;
    if (bytes + besideBytes <= memoryBytes) continue;
    const beside = besideBytes > 0 ? ` beside ${formatBytes(besideBytes)} of pinned models` : "";
    throw new ConfigError(
      `The model ${setting.name} takes ${formatBytes(bytes)}${beside}, and --memory is ${formatBytes(memoryBytes)}.`,
    );
  }
}
