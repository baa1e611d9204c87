import { type Bunting, defaultClient } from "./client.ts";
import { ServerError } from "./errors.ts";
import type { ProgramEvent } from "./events.ts";
import { type Cell, cellsBehind, failureBehind, type Running, type Settled, writeGraph } from "./graph.ts";

/** Request for a value. */
export interface Wanted {
  readonly cell: Cell;
  readonly criteria: string;
  readonly signal: AbortSignal | undefined;
  /** Receives the text as it is generated; null if not needed. */
  readonly onText: ((piece: string) => void) | null;
}

interface Waiting extends Wanted {
  readonly resolve: (settled: Settled) => void;
  readonly reject: (reason: unknown) => void;
}

/** Requested values since the last program was sent, by server. */
const pending = new Map<Bunting, Waiting[]>();

/** Resolves when the value has settled. Values requested before the next event-loop turn form one program. */
export function want(wanted: Wanted, client: Bunting = defaultClient()): Promise<Settled> {
  return new Promise((resolve, reject) => {
    const { signal } = wanted;
    if (signal?.aborted) {
      reject(signal.reason);
      return;
    }
    const waiting: Waiting = { ...wanted, resolve, reject };
    signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
    const before = pending.get(client);
    if (before !== undefined) {
      before.push(waiting);
      return;
    }
    pending.set(client, [waiting]);
    setTimeout(() => {
      const all = pending.get(client)!;
      pending.delete(client);
      compute(all, client).catch((error: unknown) => {
        for (const { reject } of all) reject(error);
      });
    }, 0);
  });
}

async function compute(all: readonly Waiting[], client: Bunting): Promise<void> {
  let left = all;
  for (;;) {
    left = left.filter(({ signal }) => signal?.aborted !== true);
    for (const one of left) {
      const failure = failureBehind(one.cell);
      if (failure !== null) one.resolve({ failure });
      else tellSettled(one);
    }
    left = left.filter(({ cell }) => cell.settled === null && failureBehind(cell) === null);
    if (left.length === 0) return;
    // A value is computed only once: waits for values that another program computes now.
    const others = new Set(
      [...cellsBehind(left.map(({ cell }) => cell))].flatMap(({ running }) =>
        running === null ? [] : [running],
      ),
    );
    if (others.size === 0) break;
    await Promise.all([...others].map(({ over }) => over));
  }
  await run(left, client);
}

function tellSettled({ cell, onText, resolve }: Waiting): void {
  if (cell.settled === null) return;
  if (onText !== null && "value" in cell.settled && typeof cell.settled.value === "string")
    onText(cell.settled.value);
  resolve(cell.settled);
}

async function run(wanted: readonly Waiting[], client: Bunting): Promise<void> {
  const { body, names } = writeGraph(wanted.map(({ cell }) => cell));
  const cells = new Map([...names].map(([cell, name]) => [name, cell]));
  let over = (): void => {};
  const running: Running = {
    over: new Promise((resolve) => {
      over = resolve;
    }),
  };
  for (const cell of names.keys()) cell.running = running;
  const awaited = Object.fromEntries(wanted.map(({ cell, criteria }) => [names.get(cell)!, criteria]));
  const leaving = new AbortController();
  const leave = (): void => {
    if (wanted.every(({ signal }) => signal?.aborted === true)) leaving.abort();
  };
  for (const { signal } of wanted) signal?.addEventListener("abort", leave, { once: true });
  const streamed = new Set<Cell>();
  try {
    for await (const event of client.run({ ...body, await: awaited }, leaving.signal)) {
      if ("variable" in event) note(event, cells.get(event.variable), wanted, streamed);
    }
    const end = new ServerError(0, null, "the answer ended before the value was there");
    for (const { cell, reject } of wanted) if (cell.settled === null) reject(end);
  } catch (error) {
    for (const { reject } of wanted) reject(error); // no effect on promises that are already settled
  } finally {
    for (const { signal } of wanted) signal?.removeEventListener("abort", leave);
    for (const cell of names.keys()) if (cell.running === running) cell.running = null;
    over();
  }
}

function note(
  event: Extract<ProgramEvent, { readonly variable: string }>,
  cell: Cell | undefined,
  wanted: readonly Waiting[],
  streamed: Set<Cell>,
): void {
  if (cell === undefined) return;
  const waiting = wanted.filter((one) => one.cell === cell);
  if (event.type === "variable.delta") {
    streamed.add(cell);
    for (const { onText } of waiting) onText?.(event.text);
    return;
  }
  // A cancelled value that nobody awaits has not failed: a later request computes it.
  if (event.type === "variable.failed" && event.error.code === "cancelled" && waiting.length === 0) return;
  cell.settled = event.type === "variable.ready" ? { value: event.value } : { failure: event.error };
  for (const one of waiting) {
    if (streamed.has(cell)) one.resolve(cell.settled);
    else tellSettled(one);
  }
}
