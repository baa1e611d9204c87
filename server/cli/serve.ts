/** `bunting serve`: prints the plan, starts the server, and shuts it down in order. */

import { formatBytes, type MemoryPlan } from "../../gpu/memory.ts";
import type { LoraAdapter } from "../../model/adapter.ts";
import { formatName, widenedNote } from "../../model/formats.ts";
import { matrixFormats } from "../../model/matrix-formats.ts";
import { type Config, needsKey } from "../config.ts";
import { withDraftPath } from "../engines/draft-plan.ts";
import type { ServingPlan } from "../engines/plan.ts";
import type { PlannedModel, RunningServer } from "../running-server.ts";
import { expectGuarded } from "../server-parts.ts";
import { startServer } from "../start.ts";
import { modelPath, namedAsWritten } from "./model-argument.ts";
import { progressLine, showLoading } from "./progress.ts";
import { handleSignals } from "./signals.ts";
import { table } from "./table.ts";

/** Exit code when all engines are lost for good: a new process may get their devices back (EX_TEMPFAIL). */
const LOST = 75;

/** Serves until a signal; resolves to the exit code. */
export async function serve(named: Config, model: string | null): Promise<number> {
  expectGuarded(named); // before a download
  const config = await withDraftPath(named, modelPath);
  const dir = await modelPath(model, config);
  const startedMs = performance.now();
  const progress = progressLine();
  let isDemo = dir === null;
  const server = await startServer(namedAsWritten(config, model), dir, {
    onPlan: (plan) => console.log(`${describePlan(plan)}\n`),
    modelPath,
    onModels: (models, memoryBytes) => {
      isDemo = false;
      console.log(`${describeModels(models, memoryBytes)}\n`);
    },
    onProgress: showLoading(progress),
    onLost: (engine, reason, isComing) => {
      const then = isComing ? "It is started again." : "It is not started again: it was lost too often.";
      console.error(`Engine ${engine} was lost: ${reason}. ${then}`);
    },
    onReplaced: (engine) => console.error(`Engine ${engine} is back.`),
  });
  progress.clear();
  for (const note of server.notes) console.log(`${sentence(note)}\n`);
  const ready = readyText(server, (performance.now() - startedMs) / 1000, needsKey(config));
  console.log(isDemo ? `${ready}\n${aboutDemo}\n` : ready);
  return await untilSignal(server, config.shutdownTimeoutS);
}

/** Note below the ready text when no model was named. */
const aboutDemo =
  "The demo model is tiny and only shows that everything works. Your own model is an argument: a published name such as Qwen/Qwen3-0.6B, a GGUF file or a Hugging Face folder.";

function sentence(text: string): string {
  return `${text[0]!.toUpperCase()}${text.slice(1)}.`;
}

/** Waits for signals: the first one drains, the second one ends the server at once. */
async function untilSignal(server: RunningServer, timeoutS: number): Promise<number> {
  const ended = Promise.withResolvers<number>();
  const onEnd = (exitCode: number, isAgain: boolean): void => {
    if (isAgain) {
      ended.resolve(exitCode);
      return;
    }
    const { active } = server;
    console.log(
      active === 0
        ? "Stopping."
        : `Finishing ${active} running request${active > 1 ? "s" : ""}, for at most ${timeoutS} s; a second signal ends at once.`,
    );
    server.drain(timeoutS * 1000).then(
      (cut) => {
        if (cut > 0) console.log(`${cut} request${cut > 1 ? "s were" : " was"} cut off.`);
        ended.resolve(0);
      },
      (error) => {
        console.error(error);
        ended.resolve(1);
      },
    );
  };
  server.handedOver
    .then(async () => {
      console.log("Another server has taken over the address; this one finishes its answers.");
      await server.whenLeft();
      await server.drain(0);
      ended.resolve(0);
    })
    .catch((error) => {
      console.error(error);
      ended.resolve(1);
    });
  handleSignals({ onEnd, onReload: () => console.log(server.reloadKeys()) });
  server.lost.then((reason) => {
    console.error(`No engine is left: ${reason}`);
    ended.resolve(LOST);
  });
  return await ended.promise;
}

function describePlan(plan: ServingPlan): string {
  const { names, folder, draft, adapters, contextMax } = plan;
  return [
    `${names.join(", ")}: ${folder.config.family} in ${describeNumbers(plan)}, ${describeEngines(plan)}, sequences of up to ${contextMax} tokens`,
    ...(draft === null ? [] : [`Drafts by ${describeDraft(draft)}.`]),
    ...[...adapters].map(([name, adapter]) => `Adapter ${name}: ${describeAdapter(adapter)}.`),
    `Computes on ${plan.backend.gpus === null ? "the CPU" : "GPUs"}, because ${plan.backend.reason}.`,
    "",
    memoryTable(plan.memory),
    ...folder.notes.flatMap((note) => ["", note]),
    ...describeWidened(plan),
    ...[plan.host.note, plan.disk.note].flatMap((note) => (note === null ? [] : ["", `${note}.`])),
  ].join("\n");
}

/** Names of a model's adapters, as the end of a sentence about it; "" without any. */
export function adaptersText(adapters: readonly string[]): string {
  return adapters.length === 0 ? "" : `, with adapters ${adapters.join(", ")}`;
}

function describeModels(models: readonly PlannedModel[], memoryBytes: number): string {
  const rows = models.map(({ name, family, contextMax, bytes, adapters, isPinned }) => [
    name,
    formatBytes(bytes),
    `${family}, sequences of up to ${contextMax} tokens${adaptersText(adapters)}${isPinned ? ", pinned" : ""}`,
  ]);
  const limit = Number.isFinite(memoryBytes) ? formatBytes(memoryBytes) : "unlimited";
  return table(["model", "bytes", ""], [...rows, ["memory", limit, "of all loaded models together"]]);
}

/** Lines about weights that take more memory than in the file; empty if there are none. */
function describeWidened({ folder, compute: { formats = [], compute }, backend }: ServingPlan): string[] {
  const note = widenedNote(folder.tensors, formats, compute);
  if (note === null) return [];
  const isPlain = backend.gpus === null && formats.includes(matrixFormats.plain);
  const advice = isPlain ? "; --quant int8 takes about half of that memory" : "";
  return ["", `${note}${advice}.`];
}

/** Number formats: "bf16", "bf16 with weights in int8 and int4, keys and values in fp8". */
export function describeNumbers({
  compute: { compute, formats = [], kv = "plain" },
}: Pick<ServingPlan, "compute">): string {
  const names = [...new Set(formats)]
    .filter((format) => format !== matrixFormats.plain)
    .toSorted((a, b) => a - b)
    .map(formatName);
  const fewer = [
    ...(names.length > 0 ? [`weights in ${names.join(" and ")}`] : []),
    ...(kv === "plain" ? [] : [`keys and values in ${kv}`]),
  ];
  return fewer.length === 0 ? compute : `${compute} with ${fewer.join(", ")}`;
}

/** Draft model: "smol-135m, llama in int8". */
export function describeDraft(draft: NonNullable<ServingPlan["draft"]>): string {
  return `${draft.folder.name}, ${draft.folder.config.family} in ${describeNumbers(draft)}`;
}

/** Adapter: "rank 8, 1.2 MiB, from adapters/sql". */
export function describeAdapter({ rank, bytes, path }: Pick<LoraAdapter, "rank" | "bytes" | "path">): string {
  return `rank ${rank}, ${formatBytes(bytes)}, from ${path}`;
}

/** Engines: "2 engines of 4 threads", "1 engine on gpu 0 (NVIDIA H200)". */
export function describeEngines({ backend, gpus, limits }: ServingPlan): string {
  const engines = `${backend.engines} engine${backend.engines > 1 ? "s" : ""}`;
  if (backend.gpus === null) return `${engines} of ${limits.threads} thread${limits.threads > 1 ? "s" : ""}`;
  return `${engines} on ${backend.gpus.map((gpu, index) => `gpu ${gpu} (${gpus[index]!.name})`).join(", ")}`;
}

export function memoryTable(memory: MemoryPlan): string {
  return table(
    ["memory", "bytes", ""],
    memory.rows.map(({ name, bytes, note }) => [name, formatBytes(bytes), note]),
  );
}

function readyText(server: RunningServer, seconds: number, isClosed: boolean): string {
  const key = isClosed ? " -H 'authorization: Bearer <key>'" : "";
  const body = JSON.stringify({ model: server.model, messages: [{ role: "user", content: "Who are you?" }] });
  const { loadMs, stepsMs } = server.startTimes ?? { loadMs: 0, stepsMs: 0 };
  const parts =
    loadMs > 0
      ? ` (weights ${(loadMs / 1000).toFixed(1)} s, first steps ${(stepsMs / 1000).toFixed(1)} s)`
      : "";
  return `Ready in ${seconds.toFixed(1)} s${parts}: ${server.model} at ${server.url}/v1

  Chat: ${server.url}/

  curl ${server.url}/v1/chat/completions -H 'content-type: application/json'${key} -d '${body}'
`;
}
