/**
 * Downloads a published model, or a LoRA adapter, to the cache: chooses files, checks space and memory, fetches, and links the
 * names.
 */

import { mkdirSync, statfsSync } from "node:fs";
import { formatBytes, type MemoryPlan } from "../../gpu/memory.ts";
import { type PublishedModel, publishedText } from "../../model/hub-cache.ts";
import { isObject, readJsonObject } from "../../model/json.ts";
import { blobPath, fetchBlob, missingBytes } from "./blob.ts";
import {
  adapterFiles,
  bytesOf,
  chooseGguf,
  descriptionsOf,
  ggufModels,
  hasSafetensors,
  INDEX,
  quantOf,
  weightsOf,
} from "./choose.ts";
import { HubClient, type HubLimits } from "./client.ts";
import { HubError } from "./hub-error.ts";
import { type HubFile, listFiles } from "./listing.ts";
import { FileReader } from "./ranges.ts";
import type { HubSettings } from "./settings.ts";
import { withSketch } from "./sketch.ts";
import { linkFile, snapshotPath, writeRef } from "./snapshot.ts";

/** Size of a pull, known before weights are fetched. */
export interface PullSize {
  readonly model: PublishedModel;
  readonly commit: string;
  /** All files of the model. */
  readonly bytes: number;
  /** Bytes that are not in the cache yet. */
  readonly missingBytes: number;
  readonly cache: string;
}

export interface PullProgress {
  readonly doneBytes: number;
  readonly totalBytes: number;
  /** Part of `doneBytes` that came from the hub during this pull. */
  readonly receivedBytes: number;
  readonly file: HubFile;
  readonly fileDoneBytes: number;
}

export interface PullEvents {
  /** Called once the size is known, before weights are fetched. */
  onSize(size: PullSize): void;
  onProgress(progress: PullProgress): void;
}

export interface PullOptions {
  readonly settings: HubSettings;
  readonly limits?: HubLimits;
  readonly signal: AbortSignal;
  readonly events: PullEvents;
  /**
   * Plans the memory of the model at a path before its weights are fetched. A plan that does not fit refuses
   * the model; null: no check.
   */
  readonly plan: ((path: string) => Promise<MemoryPlan>) | null;
}

/** Files fetched at the same time; large ones also have several connections each. */
const SMALL_AT_ONCE = 8;

/** Fetches the missing files. Resolves to the path to serve: the snapshot's folder or a GGUF file. */
export async function pullModel(model: PublishedModel, options: PullOptions): Promise<string> {
  const { settings, events } = options;
  if (settings.isOffline)
    throw new HubError(
      `${publishedText(model)} is not in the cache, and HF_HUB_OFFLINE forbids to fetch it.`,
    );
  const stop = new AbortController();
  const signal = AbortSignal.any([options.signal, stop.signal]);
  try {
    const pull = await Pull.begin(model, settings, new HubClient(settings, options.limits), signal, events);
    await pull.checkPlan(options.plan);
    return await pull.finish();
  } finally {
    stop.abort(new Error("the pull has ended"));
  }
}

class Pull {
  readonly #model: PublishedModel;
  readonly #cache: string;
  readonly #client: HubClient;
  readonly #signal: AbortSignal;
  readonly #events: PullEvents;
  readonly #commit: string;
  readonly #all: readonly HubFile[];
  #descriptions: readonly HubFile[] = [];
  #weights: readonly HubFile[] = [];
  #isAdapter = false;
  #doneBytes = 0;
  #receivedBytes = 0;
  #totalBytes = 0;

  private constructor(
    model: PublishedModel,
    cache: string,
    client: HubClient,
    signal: AbortSignal,
    events: PullEvents,
    commit: string,
    all: readonly HubFile[],
  ) {
    this.#model = model;
    this.#cache = cache;
    this.#client = client;
    this.#signal = signal;
    this.#events = events;
    this.#commit = commit;
    this.#all = all;
  }

  /** Lists and chooses the files, checks the disk, and fetches the descriptions. */
  static async begin(
    model: PublishedModel,
    { cache }: HubSettings,
    client: HubClient,
    signal: AbortSignal,
    events: PullEvents,
  ): Promise<Pull> {
    const { commit, files } = await listFiles(client, model, signal);
    const pull = new Pull(model, cache, client, signal, events, commit, files);
    await pull.#choose();
    return pull;
  }

  async #choose(): Promise<void> {
    const { name, variant } = this.#model;
    const adapter = variant === null ? adapterFiles(this.#all) : null;
    if (adapter !== null) {
      this.#isAdapter = true;
      this.#descriptions = [adapter.config];
      this.#weights = [adapter.weights];
    } else if (variant !== null || !hasSafetensors(this.#all)) {
      this.#weights = chooseGguf(name, this.#all, variant);
    } else {
      this.#descriptions = descriptionsOf(this.#all);
      this.#weights = weightsOf(this.#all, null) ?? weightsOf(this.#all, await this.#shards())!;
    }
    const files = [...this.#descriptions, ...this.#weights];
    const missing = files.reduce((sum, file) => sum + missingBytes(this.#blobOf(file), file.bytes), 0);
    this.#totalBytes = bytesOf(files);
    this.#events.onSize({
      model: this.#model,
      commit: this.#commit,
      bytes: this.#totalBytes,
      missingBytes: missing,
      cache: this.#cache,
    });
    this.#expectDisk(missing);
    for (let at = 0; at < this.#descriptions.length; at += SMALL_AT_ONCE)
      await Promise.all(this.#descriptions.slice(at, at + SMALL_AT_ONCE).map((file) => this.#fetch(file)));
  }

  /** Refuses a model that does not fit this machine, before its weights are fetched. */
  async checkPlan(plan: PullOptions["plan"]): Promise<void> {
    const missing = this.#weights.some((file) => missingBytes(this.#blobOf(file), file.bytes) > 0);
    if (plan === null || !missing || this.#isAdapter) return;
    const memory = await withSketch(
      this.#model.name,
      this.#descriptions.map((file) => ({ path: file.path, source: this.#blobOf(file) })),
      this.#weights.map((file) => this.#readerOf(file)),
      this.#signal,
      plan,
    );
    if (memory.kind === "refused") throw new HubError(this.#tooLarge(memory));
  }

  /** Fetches the weights and links all names. */
  async finish(): Promise<string> {
    const { name } = this.#model;
    for (const file of this.#weights) await this.#fetch(file);
    for (const file of [...this.#descriptions, ...this.#weights])
      linkFile(this.#cache, name, this.#commit, file);
    // A branch moves on once its new snapshot is complete.
    writeRef(this.#cache, this.#model, this.#commit);
    const first = this.#weights[0]!.path;
    return snapshotPath(this.#cache, name, this.#commit, first.endsWith(".gguf") ? first : "");
  }

  /** Names of the weight files, from the index file, which it fetches. */
  async #shards(): Promise<ReadonlySet<string>> {
    const index = this.#all.find(({ path }) => path === INDEX)!;
    await fetchBlob(this.#cache, this.#model.name, this.#readerOf(index), this.#signal, () => {});
    const map = readJsonObject(this.#blobOf(index), 128 << 20).weight_map;
    if (!isObject(map)) throw new HubError(`${this.#model.name}/${INDEX} has no weight_map.`);
    return new Set(Object.values(map).map(String));
  }

  async #fetch(file: HubFile): Promise<void> {
    let fileDoneBytes = 0;
    await fetchBlob(this.#cache, this.#model.name, this.#readerOf(file), this.#signal, (bytes, from) => {
      fileDoneBytes += bytes;
      this.#doneBytes += bytes;
      if (from === "hub") this.#receivedBytes += bytes;
      const [doneBytes, totalBytes, receivedBytes] = [this.#doneBytes, this.#totalBytes, this.#receivedBytes];
      this.#events.onProgress({ doneBytes, totalBytes, receivedBytes, file, fileDoneBytes });
    });
  }

  #expectDisk(neededBytes: number): void {
    mkdirSync(this.#cache, { recursive: true });
    const { bavail, bsize } = statfsSync(this.#cache);
    const freeBytes = bavail * bsize;
    if (neededBytes > freeBytes)
      throw new HubError(
        `${publishedText(this.#model)} needs ${formatBytes(neededBytes)} on the disk of ${this.#cache}, where ${formatBytes(freeBytes)} are free.`,
      );
  }

  #tooLarge({ neededBytes, availableBytes, advice, rows }: Extract<MemoryPlan, { kind: "refused" }>): string {
    const besides = neededBytes - rows[0]!.bytes;
    const smaller = ggufModels(this.#all)
      .filter((model) => besides + bytesOf(model) <= availableBytes)
      .toSorted((a, b) => bytesOf(b) - bytesOf(a))[0];
    const quant = smaller === undefined ? null : quantOf(smaller[0]!.path);
    const lines = [
      ...(quant === null ? [] : [`${this.#model.name}:${quant} would (${formatBytes(bytesOf(smaller!))})`]),
      ...advice,
    ];
    const problem = `${publishedText(this.#model)} will not fit: it needs ${formatBytes(neededBytes)}, and ${formatBytes(availableBytes)} are free. No weights were fetched.`;
    return [problem, ...lines.map((line) => `  - ${line}`)].join("\n");
  }

  #blobOf(file: HubFile): string {
    return blobPath(this.#cache, this.#model.name, file);
  }

  #readerOf(file: HubFile): FileReader {
    return new FileReader(this.#client, this.#model.name, this.#commit, file);
  }
}
