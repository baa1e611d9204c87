/**
 * The memory plan: how many bytes each part gets, worked out before anything is allocated. Pure arithmetic.
 *
 * What is left after weights, workspaces and a reserve is free for keys and values. Unless asked for a number
 * of bytes, the KV cache takes half of that, at least one full context and at most 64 of them: a cache that
 * large keeps long prefixes alive, and the other half stays with the machine.
 */
export interface MemoryInput {
  /** What weights and keys and values are kept in; the byte counts below are for this. */
  readonly compute: "bf16" | "f32";
  /** Whether some of the weights are in int8, int6 or int4. */
  readonly isRounded: boolean;
  /** Packed weights, once for all engines. */
  readonly weightBytes: number;
  /** One KV page over all layers. */
  readonly pageBytes: number;
  readonly pageTokens: number;
  /** Per engine, what a full step works in. */
  readonly workspaceBytes: number;
  /** Engines that share the weights, each with pages and workspaces of its own; ≥ 1. */
  readonly engines: number;
  /** Longest sequence to serve, in tokens. */
  readonly contextMax: number;
  /** What may be used in all: free memory, or a limit that was set. */
  readonly availableBytes: number;
  /** KV cache of all engines together as asked for; null chooses. */
  readonly kvBytes: number | null;
}

export interface MemoryRow {
  readonly name: string;
  readonly bytes: number;
  /** What the bytes buy, for people; may be empty. */
  readonly note: string;
}

export type MemoryPlan =
  | {
      readonly kind: "fits";
      /** KV pages per engine. */
      readonly pages: number;
      readonly rows: readonly MemoryRow[];
    }
  | {
      readonly kind: "refused";
      readonly neededBytes: number;
      readonly availableBytes: number;
      /** One sentence with the numbers. */
      readonly reason: string;
      /** What would help, most useful first. */
      readonly advice: readonly string[];
      readonly rows: readonly MemoryRow[];
    };

const gib = 2 ** 30;
const mib = 2 ** 20;
const contextsMax = 64;
const kvShare = 0.5;

/** The table and the pages, or why it cannot be. */
export function planMemory(input: MemoryInput): MemoryPlan {
  const { weightBytes, pageBytes, pageTokens, engines, contextMax, availableBytes } = input;
  const reserveBytes = Math.ceil(Math.min(Math.max(availableBytes * 0.05, 64 * mib), 2 * gib));
  const workspaces = input.workspaceBytes * engines;
  const freeBytes = availableBytes - weightBytes - workspaces - reserveBytes;

  const pagesPerContext = Math.ceil(contextMax / pageTokens);
  const pagesThatFit = Math.max(0, Math.floor(freeBytes / engines / pageBytes));
  const pagesWanted =
    input.kvBytes === null
      ? Math.min(Math.max(Math.floor(pagesThatFit * kvShare), pagesPerContext), contextsMax * pagesPerContext)
      : Math.floor(input.kvBytes / engines / pageBytes);
  const pages = Math.max(pagesWanted, pagesPerContext);

  const kvBytes = pages * pageBytes * engines;
  const contexts = pages / pagesPerContext;
  const each = engines > 1 ? " per engine" : "";
  const rows: MemoryRow[] = [
    { name: "weights", bytes: weightBytes, note: engines > 1 ? `shared by ${engines} engines` : "" },
    {
      name: "KV cache",
      bytes: kvBytes,
      note: `${pages * pageTokens} tokens${each} in ${pages} pages, ${Number(contexts.toFixed(1))} full contexts of ${contextMax}`,
    },
    { name: "workspaces", bytes: workspaces, note: "" },
    { name: "reserve", bytes: reserveBytes, note: "left to the system" },
    { name: "free", bytes: freeBytes - kvBytes, note: "" },
  ];

  if (pagesWanted < pagesPerContext && input.kvBytes !== null) {
    const neededBytes = pagesPerContext * pageBytes * engines;
    return {
      kind: "refused",
      neededBytes,
      availableBytes: input.kvBytes,
      reason:
        `a KV cache of ${formatBytes(input.kvBytes)} holds ${pagesWanted * pageTokens} tokens${each}, ` +
        `less than one context of ${contextMax} tokens, which takes ${formatBytes(neededBytes)}`,
      advice: [...contextAdvice(pagesWanted * pageTokens), kvAdvice(neededBytes, Math.ceil, "more")],
      rows,
    };
  }
  if (pages <= pagesThatFit) return { kind: "fits", pages, rows };

  const neededBytes = weightBytes + workspaces + reserveBytes + kvBytes;
  // Where a whole context fits, a shorter one would not help.
  const advice = pagesThatFit < pagesPerContext ? contextAdvice(pagesThatFit * pageTokens) : [];
  if (pages > pagesPerContext) advice.unshift(kvAdvice(freeBytes, Math.floor, "less"));
  if (input.compute === "f32") advice.push("--dtype bf16 halves weights and KV cache");
  // Rounding frees less than the weights take.
  if (!input.isRounded && neededBytes - availableBytes < weightBytes)
    advice.push("--quant int8 halves the weights, --quant int4 quarters them");
  if (engines > 1) advice.push("run fewer engines");
  advice.push("free memory, or choose a smaller model");
  return {
    kind: "refused",
    neededBytes,
    availableBytes,
    reason:
      `${formatBytes(neededBytes)} are needed and ${formatBytes(availableBytes)} available: ` +
      `weights ${formatBytes(weightBytes)}, KV cache of ${pages * pageTokens} tokens${each} ${formatBytes(kvBytes)}, ` +
      `workspaces ${formatBytes(workspaces)}, reserve ${formatBytes(reserveBytes)}`,
    advice,
    rows,
  };
}

/** The longest context that would fit, if there is one worth having. */
function contextAdvice(tokensThatFit: number): string[] {
  return tokensThatFit >= 128 ? [`--max-model-len ${tokensThatFit} or less fits`] : [];
}

/** A size of the KV cache for the flag, in tenths of a GiB. */
function kvAdvice(bytes: number, round: (value: number) => number, or: "more" | "less"): string {
  return `--kv-cache-gib ${round((bytes / gib) * 10) / 10} or ${or}`;
}

/** Bytes for people: "3.2 GiB", "512 MiB", "96 KiB". */
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
