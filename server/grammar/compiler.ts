import { LRUCache } from "lru-cache";
import type { CompiledConstraint } from "../../grammar/compile.ts";
import type { Constraint } from "../../grammar/constraint.ts";
import { ConstraintError } from "../../grammar/error.ts";
import type { Grammar } from "../../grammar/grammar.ts";
import type { ConstraintSource } from "../../grammar/source.ts";

/**
 * Compiles constraints on a thread of their own, one after another and throttled (pace.ts), so that no answer
 * waits for another request's schema. A budget of steps and processor time bounds the work. A timeout
 * terminates a thread that does not answer all the same.
 */

/** Constraints in the queue at most. */
const WAITING_MAX = 64;
/** Far above the time of a throttled thread on a crowded machine. */
const TIMEOUT_MS = 20_000;
const CACHED_MAX = 256;
const CACHED_BYTES_MAX = 256 * 2 ** 20;
/** Memory of a grammar, nearly all of it typed arrays. */
function bytesOf({ expressions, automata, terminals, productions, firstProductions }: Grammar): number {
  const tables = automata.flatMap(({ classOf, next, accepts }) => [classOf, next, accepts]);
  const lists = [expressions, productions].flatMap(({ numbers, starts }) => [numbers, starts]);
  const arrays = [...tables, ...lists, terminals, firstProductions];
  return arrays.reduce((sum, { byteLength }) => sum + byteLength, 1024);
}

/** Message from the thread. */
export type CompilerAnswer =
  | { readonly kind: "compiled"; readonly compiled: CompiledConstraint }
  | { readonly kind: "refused"; readonly message: string; readonly pointer: string };

/**
 * A compiled constraint, and the names of its parts that demand nothing, or that cannot be enforced and need
 * not be.
 */
export interface Compiled {
  readonly constraint: Constraint;
  readonly ignored: readonly string[];
}

interface Job {
  readonly source: ConstraintSource;
  readonly isPaced: boolean;
  readonly resolve: (compiled: CompiledConstraint) => void;
  readonly reject: (error: Error) => void;
}

/** Message to the thread. */
export interface CompilerTask {
  readonly source: ConstraintSource;
  /** True to throttle the work. */
  readonly isPaced: boolean;
}

export class ConstraintCompiler {
  readonly #workerUrl: string;
  readonly #timeoutMs: number;
  readonly #cache: LRUCache<string, Compiled>;
  /** Running compilations by id. */
  readonly #coming = new Map<string, Promise<Compiled>>();
  readonly #jobs: Job[] = [];
  #worker: Worker | null = null;
  #timer: ReturnType<typeof setTimeout> | null = null;

  /** `workerUrl` is that of worker.ts. */
  constructor(workerUrl: string, timeoutMs = TIMEOUT_MS, cachedBytesMax = CACHED_BYTES_MAX) {
    this.#workerUrl = workerUrl;
    this.#timeoutMs = timeoutMs;
    this.#cache = new LRUCache({
      max: CACHED_MAX,
      maxSize: cachedBytesMax,
      sizeCalculation: ({ constraint }) => bytesOf(constraint.grammar),
    });
  }

  /**
   * Compiles a constraint. Rejects with ConstraintError if it is malformed, contradictory, or takes too long.
   * `isPaced`: throttles the work, because an answer is being computed on the same cores.
   */
  compile(source: ConstraintSource, isPaced = false): Promise<Compiled> {
    const id = new Bun.CryptoHasher("sha256").update(JSON.stringify(source)).digest("hex");
    const cached = this.#cache.get(id);
    if (cached !== undefined) return Promise.resolve(cached);
    const coming = this.#coming.get(id);
    if (coming !== undefined) return coming;
    const started = this.#start(id, source, isPaced).finally(() => this.#coming.delete(id));
    this.#coming.set(id, started);
    return started;
  }

  /** Size of the cache; `bytes` is an estimate. */
  get kept(): { readonly entries: number; readonly bytes: number } {
    return { entries: this.#cache.size, bytes: this.#cache.calculatedSize };
  }

  /** Ends the thread and rejects the queue. */
  close(): void {
    this.#stop(new Error("constraints are compiled no more"), this.#jobs.splice(0));
  }

  async #start(id: string, source: ConstraintSource, isPaced: boolean): Promise<Compiled> {
    if (this.#jobs.length >= WAITING_MAX)
      throw new ConstraintError(`${WAITING_MAX} others wait to be compiled; try again`);
    const { promise, resolve, reject } = Promise.withResolvers<CompiledConstraint>();
    this.#jobs.push({ source, isPaced, resolve, reject });
    if (this.#jobs.length === 1) this.#next();
    const { grammar, ignored } = await promise;
    const compiled = { constraint: { id, grammar }, ignored };
    this.#cache.set(id, compiled);
    return compiled;
  }

  /** Sends the first job to the thread. */
  #next(): void {
    const job = this.#jobs[0];
    if (job === undefined) return;
    this.#worker ??= this.#open();
    const { source, isPaced } = job;
    this.#worker.postMessage({ source, isPaced } satisfies CompilerTask);
    this.#timer = setTimeout(() => {
      this.#stop(new ConstraintError(`it takes longer than ${this.#timeoutMs} ms to compile`), [
        this.#jobs.shift()!,
      ]);
      this.#next();
    }, this.#timeoutMs);
  }

  #open(): Worker {
    const worker = new Worker(this.#workerUrl, { name: "constraints" });
    worker.unref(); // never keeps the process alive by itself
    worker.onmessage = ({ data }: MessageEvent<CompilerAnswer>) => {
      if (this.#timer !== null) clearTimeout(this.#timer);
      const job = this.#jobs.shift();
      if (data.kind === "compiled") job?.resolve(data.compiled);
      else job?.reject(new ConstraintError(data.message, data.pointer));
      this.#next();
    };
    worker.onerror = (event) => {
      const [job] = this.#jobs.splice(0, 1);
      this.#stop(new Error(event.message), job === undefined ? [] : [job]);
      this.#next();
    };
    return worker;
  }

  #stop(reason: Error, jobs: readonly Job[]): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#worker?.terminate();
    this.#worker = null;
    for (const { reject } of jobs) reject(reason);
  }
}
