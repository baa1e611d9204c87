/**
 * Workloads by name: from a trace file if it is present, else sampled from published statistics. Traces
 * belong to others and are not part of the project; docs/papers/README.md names the source of each.
 */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Workload } from "../../../simulation/workload.ts";
import {
  type AgentCall,
  agentSessions,
  agentWorkload,
  parseAgentSession,
} from "../../../simulation/workloads/agents.ts";
import { azureCalls, azureWorkload, parseAzure } from "../../../simulation/workloads/azure.ts";
import { chatLengths, chatWorkload, type Lengths, parseLengths } from "../../../simulation/workloads/chat.ts";
import {
  conversations,
  conversationWorkload,
  parseMooncake,
} from "../../../simulation/workloads/conversation.ts";
import { mixedWorkload } from "../../../simulation/workloads/mixed.ts";
import { parseToolBench, tools, toolsLike, toolWorkload } from "../../../simulation/workloads/tools.ts";
import { parseNextQa, videos, videoWorkload } from "../../../simulation/workloads/videos.ts";
import { parseVllmLog, vllmLogWorkload } from "../../../simulation/workloads/vllm-log.ts";

/** Path of each trace in the traces' folder. */
export const traceFiles = {
  lengths: "sarathi-lengths/sharegpt_8k_filtered_stats_llama2_tokenizer.csv",
  azure: "azure-llm-2023/AzureLLMInferenceTrace_code.csv",
  mooncake: "mooncake-fast25/conversation_trace.jsonl",
  mooncakeSynthetic: "mooncake-fast25/synthetic_trace.jsonl",
  agents: "lmcache-agent-trace/miniswe",
  nextQa: "nextqa/test.csv",
  toolBench: "stabletoolbench/G1_instruction.json",
  vllmRun: "llmservingsim/bench/examples/RTX4090/Llama-3.1-8B/vllm/requests.jsonl",
  vllmAsked: "llmservingsim/workloads/sharegpt-llama-3.1-8b-300-sps10.jsonl",
} as const;

/** Default folder of traces without `--traces`, relative to the working directory. */
const TRACES_DEFAULT = "../shared/traces";

/** Folder of traces: the requested one, which must exist, else the default one if it exists, else null. */
export function tracesFolder(asked: string | null): string | null {
  if (asked !== null && !existsSync(asked)) throw new Error(`There is no folder of traces at ${asked}.`);
  return asked ?? (existsSync(TRACES_DEFAULT) ? TRACES_DEFAULT : null);
}

/** Text of a trace; null if absent. */
export function readTrace(folder: string | null, trace: keyof typeof traceFiles): string | null {
  if (folder === null) return null;
  const path = join(folder, traceFiles[trace]);
  return existsSync(path) ? readFileSync(path, "utf8") : null;
}

/** Options of any workload; null for the workload's own default. */
export interface WorkloadOptions {
  readonly seed: number;
  /** Calls per second; scales the times of traces that have their own. */
  readonly callsPerSecond: number | null;
  readonly calls: number | null;
}

/** Workload by name; `make` creates it anew for each run. */
export interface NamedWorkload {
  readonly make: () => Workload;
  /** Source for people: the trace file, or that it was sampled from statistics. */
  readonly source: string;
}

interface Source {
  readonly callsPerSecond: number;
  readonly calls: number;
  open(
    folder: string | null,
    options: WorkloadOptions & { callsPerSecond: number; calls: number },
  ): NamedWorkload;
}

const DRAWN = "drawn from published statistics";

/** Rows of the trace if it is present, else sampled ones. */
function either<Rows>(
  folder: string | null,
  trace: keyof typeof traceFiles,
  parse: (text: string) => Rows,
  draw: () => Rows,
): { readonly rows: Rows; readonly source: string } {
  const text = readTrace(folder, trace);
  return text === null ? { rows: draw(), source: DRAWN } : { rows: parse(text), source: traceFiles[trace] };
}

/** Chat lengths: the trace's, or sampled. */
export function lengthsOf(folder: string | null): {
  readonly rows: readonly Lengths[];
  readonly source: string;
} {
  return either(folder, "lengths", parseLengths, () => chatLengths(4096, 1));
}

/** Agent sessions, one per file; without the trace, `count` sampled ones. */
export function agentsOf(
  folder: string | null,
  count: number,
): { readonly rows: readonly (readonly AgentCall[])[]; readonly source: string } {
  const path = folder === null ? null : join(folder, traceFiles.agents);
  if (path === null || !existsSync(path)) return { rows: agentSessions(count, 1), source: DRAWN };
  const files = readdirSync(path).sort();
  const rows = files.map((file) => parseAgentSession(readFileSync(join(path, file), "utf8")));
  return { rows, source: traceFiles.agents };
}

/** Factor by which call times stretch so that there are `callsPerSecond`. */
function timeScaleOf(rows: readonly { readonly atMs: number }[], callsPerSecond: number): number {
  const ownMs = rows.at(-1)!.atMs - rows[0]!.atMs;
  return ownMs === 0 ? 1 : ((rows.length - 1) * 1000) / callsPerSecond / ownMs;
}

const sources: Readonly<Record<string, Source>> = {
  chat: {
    callsPerSecond: 2,
    calls: 1024,
    open: (folder, options) => {
      const { rows, source } = lengthsOf(folder);
      return { make: () => chatWorkload(rows, options), source };
    },
  },
  "azure-code": {
    callsPerSecond: 2.57,
    calls: 2048,
    open: (folder, options) => {
      const { rows, source } = either(folder, "azure", parseAzure, () => azureCalls(options.calls, 1));
      const part = rows.slice(0, options.calls);
      const timeScale = timeScaleOf(part, options.callsPerSecond);
      return { make: () => azureWorkload(part, { ...options, timeScale }), source };
    },
  },
  conversation: {
    callsPerSecond: 3.4,
    calls: 2048,
    open: (folder, options) => {
      const draw = () => conversations(options, 1);
      const { rows, source } = either(folder, "mooncake", parseMooncake, draw);
      const part = rows.slice(0, options.calls);
      const timeScale = timeScaleOf(part, options.callsPerSecond);
      return { make: () => conversationWorkload(part, { ...options, timeScale }), source };
    },
  },
  videos: {
    callsPerSecond: 3,
    calls: 900,
    open: (folder, options) => {
      const { rows, source } = either(folder, "nextQa", parseNextQa, () => videos(1000, 1));
      return { make: () => videoWorkload(rows, { ...options, videosMax: 300 }), source };
    },
  },
  tools: {
    callsPerSecond: 36,
    calls: 2000,
    open: (folder, options) => {
      const text = readTrace(folder, "toolBench");
      const rows = text === null ? tools(320, 1) : toolsLike(parseToolBench(text), 320, 1);
      const source = text === null ? DRAWN : traceFiles.toolBench;
      return { make: () => toolWorkload(rows, { ...options, exponent: 1.1 }), source };
    },
  },
  agents: {
    callsPerSecond: 0.2,
    calls: 20,
    open: (folder, { seed, callsPerSecond, calls }) => {
      const { rows, source } = agentsOf(folder, calls);
      const part = rows.slice(0, calls);
      const make = () => agentWorkload(part, { seed, sessionsPerSecond: callsPerSecond });
      return { make, source };
    },
  },
  mixed: {
    callsPerSecond: 4,
    calls: 1024,
    open: (folder, options) => {
      const { rows, source } = lengthsOf(folder);
      return { make: () => mixedWorkload(rows, options), source };
    },
  },
  "vllm-log": {
    callsPerSecond: 10,
    calls: 300,
    open: (folder, { calls }) => {
      const [run, asked] = [readTrace(folder, "vllmRun"), readTrace(folder, "vllmAsked")];
      if (run === null || asked === null) {
        throw new Error(`The workload vllm-log is a trace: it needs ${traceFiles.vllmRun} in --traces.`);
      }
      const rows = parseVllmLog(run, asked);
      return { make: () => vllmLogWorkload(rows, calls), source: traceFiles.vllmRun };
    },
  },
};

/** Names that `openWorkload` knows. For `agents`, calls and rate mean sessions. */
export const workloadNames: readonly string[] = Object.keys(sources);

/**
 * Opens the workload of that name. Throws an error for people if the name is unknown, or if the workload
 * needs an absent trace.
 */
export function openWorkload(name: string, folder: string | null, options: WorkloadOptions): NamedWorkload {
  const source = Object.hasOwn(sources, name) ? sources[name] : undefined;
  if (source === undefined) {
    throw new Error(`There is no workload ${name}; there are ${workloadNames.join(", ")}.`);
  }
  return source.open(folder, {
    seed: options.seed,
    callsPerSecond: options.callsPerSecond ?? source.callsPerSecond,
    calls: options.calls ?? source.calls,
  });
}
