/**
 * Memory plan: bytes of each part, computed before anything is allocated. Pure arithmetic.
 *
 * Memory left after weights, workspaces and a reserve is available to the KV cache. By default the cache
 * takes half of it, but at least one full context and at most 64. The other half stays free for other
 * programs. On a GPU, which serves nothing else, the cache takes nine tenths.
 *
 * The recurrent states of a model are part of that cache: up to 15 % for checkpoints, and up to 15 % for
 * running sequences, but at least `STATES_MIN` slots.
 */
export interface MemoryInput {
  /** Type of weights, keys and values; the byte counts below are for this type. */
  readonly compute: "bf16" | "f32";
  /** True if some weights are quantized to int8, int6 or int4. */
  readonly isRounded: boolean;
  /** Bytes of the packed weights, which all engines share. */
  readonly weightBytes: number;
  /** Bytes of one KV page over all layers, those of a draft model included. */
  readonly pageBytes: number;
  /** Weights of a draft model, which all engines share, and its part of a page. Absent: there is none. */
  readonly draft?: { readonly weightBytes: number; readonly pageBytes: number };
  /** Bytes and number of the LoRA adapters, which all engines share. Absent: there are none. */
  readonly adapters?: { readonly bytes: number; readonly count: number };
  readonly pageTokens: number;
  /** Bytes of one state slot, and maximum sequences in a step; null: the model has no recurrent layers. */
  readonly states: { readonly bytes: number; readonly sequencesMax: number } | null;
  /** True if the memory is a GPU's; default: false. */
  readonly isGpu?: boolean;
  /** Workspace of a full step, per engine. */
  readonly workspaceBytes: number;
  /** Bytes of buffers for pages that are being written to disk, per engine; default: 0. */
  readonly diskBytes?: number;
  /** Number of engines that share the weights, each with its own pages and workspace; ≥ 1. */
  readonly engines: number;
  /** Longest sequence to serve, in tokens. */
  readonly contextMax: number;
  /** Memory limit: free memory, or a configured limit. */
  readonly availableBytes: number;
  /** Configured KV cache of all engines together; null for the default. */
  readonly kvBytes: number | null;
}

export interface MemoryRow {
  readonly name: string;
  readonly bytes: number;
  /** Capacity of these bytes, for people; may be empty. */
  readonly note: string;
}

export type MemoryPlan =
  | {
      readonly kind: "fits";
      /** KV pages per engine. */
      readonly pages: number;
      /** State slots per engine; 0 for a model without recurrent layers. */
      readonly states: number;
      readonly rows: readonly MemoryRow[];
    }
  | {
      readonly kind: "refused";
      readonly neededBytes: number;
      readonly availableBytes: number;
      /** Sentence with the numbers. */
      readonly reason: string;
      /** Remedies, most useful first. */
      readonly advice: readonly string[];
      readonly rows: readonly MemoryRow[];
    };

/** Bytes that a plan allocates: all parts except the reserve and the free memory. */
export function plannedBytes({ rows }: MemoryPlan): number {
  return rows.reduce((sum, { name, bytes }) => sum + (name === "reserve" || name === "free" ? 0 : bytes), 0);
}

const gib = 2 ** 30;
const mib = 2 ** 20;
const contextsMax = 64;
const kvShare = 0.5;
const kvShareOfGpu = 0.9;
/** Minimum state slots of an engine. */
export const STATES_MIN = 8;
/** Share of the KV cache for checkpoints, and maximum share for the states of running sequences. */
const stateShare = 0.15;
/** Maximum checkpoints: the scheduler scans all of them to evict one. */
const checkpointsMax = 4096;

/** Part of `availableBytes` that is left to the system. */
export function reserveOf(availableBytes: number): number {
  return Math.ceil(Math.min(Math.max(availableBytes * 0.05, 64 * mib), 2 * gib));
}

/** Table of parts and page count, or a refusal. */
export function planMemory(input: MemoryInput): MemoryPlan {
  const { draft, adapters, pageBytes, pageTokens, engines, contextMax, availableBytes } = input;
  const weightBytes = input.weightBytes + (draft?.weightBytes ?? 0) + (adapters?.bytes ?? 0);
  const reserveBytes = reserveOf(availableBytes);
  const onDisk = (input.diskBytes ?? 0) * engines;
  const workspaces = input.workspaceBytes * engines + onDisk;
  const freeBytes = availableBytes - weightBytes - workspaces - reserveBytes;

  const share = input.isGpu ? kvShareOfGpu : kvShare;
  const pagesPerContext = Math.ceil(contextMax / pageTokens);
  // State slots are counted in pages, because both share the memory.
  const leastOfStates = Math.ceil(((input.states?.bytes ?? 0) * STATES_MIN) / pageBytes);
  const least = pagesPerContext + leastOfStates;
  const tokensIn = (budget: number): number => Math.max(0, budget - leastOfStates) * pageTokens;
  const pagesIn = (bytes: number): number => Math.max(0, Math.floor(bytes / engines / pageBytes));
  const pagesThatFit = pagesIn(freeBytes);
  const wanted =
    input.kvBytes === null
      ? Math.max(least, Math.min(Math.floor(pagesThatFit * share), contextsMax * pagesPerContext))
      : pagesIn(input.kvBytes);
  const budget = Math.max(wanted, least);
  const states = statesIn(budget * pageBytes, (budget - pagesPerContext) * pageBytes, input.states);
  const stateBytes = states * (input.states?.bytes ?? 0);
  const pages = budget - Math.ceil(stateBytes / pageBytes);

  const kvBytes = (pages * pageBytes + stateBytes) * engines;
  const withStates = (slots: number): string => (states === 0 ? "" : ` with ${slots} states`);
  const contexts = pages / pagesPerContext;
  const each = engines > 1 ? " per engine" : "";
  const rows: MemoryRow[] = [
    { name: "weights", bytes: input.weightBytes, note: engines > 1 ? `shared by ${engines} engines` : "" },
    ...(draft === undefined ? [] : [draftRow(draft, pageBytes)]),
    ...(adapters === undefined
      ? []
      : [{ name: "adapters", bytes: adapters.bytes, note: `${adapters.count} of --lora` }]),
    {
      name: "KV cache",
      bytes: pages * pageBytes * engines,
      note: `${pages * pageTokens} tokens${each} in ${pages} pages, ${Number(contexts.toFixed(1))} full contexts of ${contextMax}`,
    },
    ...(input.states === null ? [] : [statesRow(states, input.states.bytes, engines, each)]),
    {
      name: "workspaces",
      bytes: workspaces,
      note: onDisk > 0 ? `${formatBytes(onDisk)} for writes to the disk` : "",
    },
    { name: "reserve", bytes: reserveBytes, note: "left to the system" },
    { name: "free", bytes: freeBytes - kvBytes, note: "" },
  ];

  // No size of the KV cache would help.
  if (freeBytes < 0) return withoutRoom({ ...input, weightBytes }, rows, workspaces + reserveBytes);
  if (wanted < least && wanted <= pagesThatFit && input.kvBytes !== null) {
    const neededBytes = least * pageBytes * engines;
    return {
      kind: "refused",
      neededBytes,
      availableBytes: input.kvBytes,
      reason:
        `a KV cache of ${formatBytes(input.kvBytes)} holds ${tokensIn(wanted)} tokens${each}${withStates(STATES_MIN)}, ` +
        `less than one context of ${contextMax} tokens, which takes ${formatBytes(neededBytes)}`,
      advice: [
        ...contextAdvice(tokensIn(wanted)),
        ...(least <= pagesThatFit ? [`--kv-cache-gib ${tenths(neededBytes, Math.ceil)} or more`] : []),
      ],
      rows,
    };
  }
  // The last page of the states may be partly unused.
  if (kvBytes <= freeBytes) return { kind: "fits", pages, states, rows };

  const neededBytes = weightBytes + workspaces + reserveBytes + kvBytes;
  // If a full context fits, a shorter one would not help.
  const without = input.kvBytes === null ? "" : " without --kv-cache-gib";
  const advice = pagesThatFit < least ? contextAdvice(tokensIn(pagesThatFit), without) : [];
  const fitting = tenths(freeBytes, Math.floor);
  if (budget > least && least <= pagesIn(fitting * gib)) advice.unshift(`--kv-cache-gib ${fitting} or less`);
  advice.push(...weightAdvice({ ...input, weightBytes }, neededBytes - weightBytes));
  return {
    kind: "refused",
    neededBytes,
    availableBytes,
    reason:
      `${formatBytes(neededBytes)} are needed and ${formatBytes(availableBytes)} available: ` +
      `weights ${formatBytes(weightBytes)}, KV cache of ${pages * pageTokens} tokens${each}${withStates(states)} ${formatBytes(kvBytes)}, ` +
      `workspaces ${formatBytes(workspaces)}, reserve ${formatBytes(reserveBytes)}`,
    advice,
    rows,
  };
}

/**
 * State slots in a KV cache of `bytes`, of which at most `mostBytes` may be states so that a full context
 * fits beside them.
 */
function statesIn(bytes: number, mostBytes: number, states: MemoryInput["states"]): number {
  if (states === null) return 0;
  const part = Math.floor((bytes * stateShare) / states.bytes);
  const wanted = Math.min(part, states.sequencesMax) + Math.min(part, checkpointsMax);
  return Math.max(STATES_MIN, Math.min(wanted, Math.floor(mostBytes / states.bytes)));
}

function draftRow(draft: NonNullable<MemoryInput["draft"]>, pageBytes: number): MemoryRow {
  const share = ((100 * draft.pageBytes) / pageBytes).toFixed(0);
  return {
    name: "draft model",
    bytes: draft.weightBytes,
    note: `weights; its keys and values are ${share} % of the KV cache`,
  };
}

function statesRow(slots: number, bytes: number, engines: number, each: string): MemoryRow {
  const note = `${slots} slots of ${formatBytes(bytes)}${each}, for running sequences and checkpoints`;
  return { name: "states", bytes: slots * bytes * engines, note };
}

/** Refuses a model whose weights, alone or together with the workspaces, exceed the available memory. */
function withoutRoom(
  input: MemoryInput,
  rows: readonly MemoryRow[],
  othersBytes: number,
): MemoryPlan & { readonly kind: "refused" } {
  const { weightBytes, availableBytes } = input;
  const others = `workspaces and the reserve take ${formatBytes(othersBytes)}`;
  return {
    kind: "refused",
    neededBytes: weightBytes + othersBytes,
    availableBytes,
    reason:
      weightBytes > availableBytes
        ? `the weights take ${formatBytes(weightBytes)}, more than the ${formatBytes(availableBytes)} available`
        : `the weights take ${formatBytes(weightBytes)} of the ${formatBytes(availableBytes)} available, and ${others}`,
    advice: weightAdvice(input, othersBytes),
    rows,
  };
}

/** Size of int4 weights as a share of their size in bf16. */
const int4Share = 0.28;

/** Advice for a model that does not fit with any context. `othersBytes`: memory besides the weights. */
function weightAdvice(
  { compute, isRounded, weightBytes, availableBytes, engines }: MemoryInput,
  othersBytes: number,
): string[] {
  const bf16Bytes = compute === "f32" ? weightBytes / 2 : weightBytes;
  const roundingHelps = !isRounded && bf16Bytes * int4Share + othersBytes <= availableBytes;
  return [
    ...(compute === "f32" ? ["--dtype bf16 halves weights and KV cache"] : []),
    ...(roundingHelps ? ["--quant int8 halves the weights, --quant int4 quarters them"] : []),
    ...(engines > 1 ? ["run fewer engines"] : []),
    "free memory, or choose a smaller model",
  ];
}

/** Advice to use the longest context that fits, if that is at least 128 tokens. */
function contextAdvice(tokensThatFit: number, without = ""): string[] {
  return tokensThatFit >= 128 ? [`--max-model-len ${tokensThatFit} or less fits${without}`] : [];
}

/** Size for --kv-cache-gib, in tenths of a GiB. */
function tenths(bytes: number, round: (value: number) => number): number {
  return round((bytes / gib) * 10) / 10;
}

/** Formats bytes for people: "3.2 GiB", "512 MiB", "96 KiB". */
export function formatBytes(bytes: number): string {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || Math.abs(value) >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${units[unit]}`;
}
