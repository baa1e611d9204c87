import { LRUCache } from "lru-cache";
import type { CompiledConstraint } from "../../grammar/compile.ts";
import type { Constraint } from "../../grammar/constraint.ts";
import { ConstraintError } from "../../grammar/error.ts";
import type { Grammar } from "../../grammar/grammar.ts";
import type { ConstraintSource } from "../../grammar/source.ts";

/**
 * Compiles constraints on a thread of its own, one after another and at a pace (pace.ts), so that no answer waits for another request's
 * schema. Work is counted in steps; a constraint that takes too long all the same takes its thread with it.
 */

/** Constraints that wait to be compiled. */
const WAITING_MAX = 64;
const TIMEOUT_MS = 2000;
const CACHED_MAX = 256;
const CACHED_BYTES_MAX = 256 * 2 ** 20;
/** What a grammar takes: nearly all of it are numbers. */
function bytesOf({ expressions, automata, terminals, productions, firstProductions }: Grammar): number {
  const tables = automata.flatMap(({ classOf, next, accepts }) => [classOf, next, accepts]);
  const lists = [expressions, productions].flatMap(({ numbers, starts }) => [numbers, starts]);
  const arrays = [...tables, ...lists, terminals, firstProductions];
  return arrays.reduce((sum, { byteLength }) => sum + byteLength, 1024);
}

/** What the thread answers. */
export type CompilerAnswer =
  | { readonly kind: "compiled"; readonly compiled: CompiledConstraint }
  | { readonly kind: "refused"; readonly message: string; readonly pointer: string };

/** A constraint, and the names of what it was asked for that demands nothing, or cannot be kept to and need not be. */
export interface Compiled {
  readonly constraint: Constraint;
  readonly ignored: readonly string[];
}

interface Job {
  readonly source: ConstraintSource;
  readonly givesWay: boolean;
  readonly resolve: (compiled: CompiledConstraint) => void;
  readonly reject: (error: Error) => void;
}

/** What the thread is sent. */
export interface CompilerTask {
  readonly source: ConstraintSource;
  /** Compiles at a pace. */
  readonly givesWay: boolean;
}

export class ConstraintCompiler {
  readonly #workerUrl: string;
  readonly #timeoutMs: number;
  readonly #cache: LRUCache<string, Compiled>;
  /** By id: those that are being compiled. */
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

  /** Rejects with ConstraintError what is not understood, contradicts itself, or takes too long. `givesWay`: somebody's answer is being
   *  computed on the same cores. */
  compile(source: ConstraintSource, givesWay = false): Promise<Compiled> {
    const id = new Bun.CryptoHasher("sha256").update(JSON.stringify(source)).digest("hex");
    const cached = this.#cache.get(id);
    if (cached !== undefined) return Promise.resolve(cached);
    const coming = this.#coming.get(id);
    if (coming !== undefined) return coming;
    const started = this.#start(id, source, givesWay).finally(() => this.#coming.delete(id));
    this.#coming.set(id, started);
    return started;
  }

  /** What is remembered. `bytes` is about what it takes. */
  get kept(): { readonly entries: number; readonly bytes: number } {
    return { entries: this.#cache.size, bytes: this.#cache.calculatedSize };
  }

  /** Ends the thread; what waits is rejected. */
  close(): void {
    this.#stop(new Error("constraints are compiled no more"), this.#jobs.splice(0));
  }

  async #start(id: string, source: ConstraintSource, givesWay: boolean): Promise<Compiled> {
    if (this.#jobs.length >= WAITING_MAX)
      throw new ConstraintError(`${WAITING_MAX} others wait to be compiled; try again`);
    const { promise, resolve, reject } = Promise.withResolvers<CompiledConstraint>();
    this.#jobs.push({ source, givesWay, resolve, reject });
    if (this.#jobs.length === 1) this.#next();
    const { grammar, ignored } = await promise;
    const compiled = { constraint: { id, grammar }, ignored };
    this.#cache.set(id, compiled);
    return compiled;
  }

  /** Gives the first job to the thread. */
  #next(): void {
    const job = this.#jobs[0];
    if (job === undefined) return;
    this.#worker ??= this.#open();
    const { source, givesWay } = job;
    this.#worker.postMessage({ source, givesWay } satisfies CompilerTask);
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
