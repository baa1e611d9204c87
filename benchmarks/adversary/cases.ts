/** Loads under which a simpler policy once did better, each with the figure that showed it. */

import type { Policy } from "../../scheduler/policy.ts";
import { readTrace } from "../../server/cli/simulate/traces.ts";
import type { Workload } from "../../simulation/workload.ts";
import { azureWorkload, parseAzure } from "../../simulation/workloads/azure.ts";
import { conversationWorkload, parseMooncake } from "../../simulation/workloads/conversation.ts";
import { type DocumentLoad, documentWorkload } from "../../simulation/workloads/documents.ts";
import { type DeviceModel, devices } from "../papers/bench.ts";
import type { Figures } from "./figures.ts";
import { own, ownWithTarget } from "./systems.ts";

export interface Case {
  readonly name: string;
  /** For people. */
  readonly what: string;
  readonly own: Policy;
  readonly devices: readonly DeviceModel[];
  readonly figure: keyof Figures;
  /** Decided by a trace, whatever the seed. */
  readonly isTrace?: true;
  /** Rivals that do not keep to it at the 99th percentile do not count; absent: all do. */
  readonly tbtMs?: number;
  readonly make: (seed: number, traces: string | null) => Workload;
}

const one = (tokens: number) => ({ least: tokens, most: tokens });

/** Nothing nested, all alike. */
const plain: Omit<DocumentLoad, "documents" | "documentTokens" | "outputTokens" | "callsPerSecond"> = {
  rootTokens: 0,
  skew: 0,
  sections: 0,
  sectionTokens: one(0),
  suffixTokens: one(100),
  tokensMax: null,
  calls: 200,
  variation: 1,
  tenants: 1,
};

function documents(load: Partial<DocumentLoad> & Omit<DocumentLoad, keyof typeof plain>): Case["make"] {
  return (seed) => documentWorkload({ ...plain, ...load }, seed);
}

/** More than the model's own context, so that no call is refused. */
const CONTEXT_MAX = 262_144;
const a100s = (count: number) => devices("a100", count, { spec: { contextMax: CONTEXT_MAX } });

const hot = {
  documents: 3,
  documentTokens: one(16_000),
  skew: 1,
  outputTokens: one(800),
  calls: 400,
};

/** Mooncake's synthetic trace; without it, questions about documents that share about as much. */
function synthetic(calls: number): Case["make"] {
  return (seed, traces) => {
    const text = readTrace(traces, "mooncakeSynthetic");
    if (text !== null) return conversationWorkload(parseMooncake(text), { calls, timeScale: 1 });
    const load = {
      ...plain,
      documents: calls / 4,
      documentTokens: { least: 100, most: 45_000 },
      suffixTokens: { least: 20, most: 1000 },
      outputTokens: { least: 4, most: 300 },
      calls,
      callsPerSecond: 3.9,
    };
    return documentWorkload(load, seed);
  };
}

/** The calls' own times, made this dense; without the trace, calls of such lengths. */
function azureChats(callsPerSecond: number, calls: number): Case["make"] {
  return (seed, traces) => {
    const text = readTrace(traces, "azureChat");
    if (text === null) {
      const load = {
        ...plain,
        documents: 1,
        documentTokens: one(0),
        suffixTokens: { least: 20, most: 2300 },
        outputTokens: { least: 10, most: 410 },
        calls,
        callsPerSecond,
      };
      return documentWorkload(load, seed);
    }
    const rows = parseAzure(text).slice(0, calls);
    const timeScale = (1000 * (calls - 1)) / callsPerSecond / rows.at(-1)!.atMs;
    return azureWorkload(rows, { seed, calls, timeScale });
  };
}

export const cases: readonly Case[] = [
  {
    name: "pressure",
    what: "1 A6000 with 1,643 pages; 3 documents of 16,000 tokens, answers of 200, 0.63 calls/s",
    own,
    devices: devices("a6000", 1, { spec: { pages: 1643 } }),
    figure: "latencyMeanMs",
    make: documents({
      documents: 3,
      documentTokens: one(16_000),
      outputTokens: one(200),
      callsPerSecond: 0.63,
    }),
  },
  {
    name: "quarter",
    what: "2 A6000 with a quarter of their pages; 50 documents of 16,000 tokens, questions of 2,000, answers of 2, 2 calls/s",
    own,
    devices: devices("a6000", 2, { spec: { pages: 3101 } }),
    figure: "latencyMeanMs",
    make: documents({
      documents: 50,
      documentTokens: one(16_000),
      suffixTokens: one(2000),
      outputTokens: one(2),
      callsPerSecond: 2,
    }),
  },
  {
    name: "tenth",
    what: "4 RTX 4090 with 600 pages; 3 documents of 6,000 tokens, answers of 800, 1 call/s",
    own,
    devices: devices("rtx4090", 4, { spec: { pages: 600 } }),
    figure: "latencyMeanMs",
    make: documents({ documents: 3, documentTokens: one(6000), outputTokens: one(800), callsPerSecond: 1 }),
  },
  {
    name: "hot",
    what: "8 A100; 3 documents of 16,000 tokens, one asked for as often as the others together, answers of 800, 3.83 calls/s",
    own,
    devices: a100s(8),
    figure: "latencyP99Ms",
    make: documents({ ...hot, callsPerSecond: 3.83 }),
  },
  {
    name: "hot-bursts",
    what: "the same at 7 calls/s in bursts (coefficient of variation 5)",
    own,
    devices: a100s(8),
    figure: "latencyP99Ms",
    make: documents({ ...hot, callsPerSecond: 7, variation: 5 }),
  },
  {
    name: "synthetic-4",
    what: "4 A100; Mooncake's synthetic trace, 600 calls",
    own,
    devices: a100s(4),
    figure: "ttftMeanMs",
    isTrace: true,
    make: synthetic(600),
  },
  {
    name: "synthetic-1",
    what: "1 A100; Mooncake's synthetic trace, 600 calls",
    own,
    devices: a100s(1),
    figure: "hitRate",
    isTrace: true,
    make: synthetic(600),
  },
  {
    name: "target",
    what: "1 A100; Azure's chats at 6 calls/s, a target of 200 ms between tokens",
    own: ownWithTarget(200),
    devices: devices("a100", 1),
    figure: "latencyMeanMs",
    isTrace: true,
    tbtMs: 200,
    make: azureChats(6, 800),
  },
];
