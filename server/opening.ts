/**
 * Parts of a server whose opening may fail and prevent its start: all but weights and engines. `serve` starts
 * from them, and `doctor` only opens them, so both report the same errors.
 */

import { expectText } from "../text/model-text.ts";
import { readProgramModels } from "./api/programs/files.ts";
import { refusalOn } from "./api/refusals.ts";
import { demoModelFolder } from "./assets.ts";
import type { Config } from "./config.ts";
import { closeStores, openStores, type Stores } from "./front.ts";
import { findPredecessor } from "./hand-over/predecessor.ts";
import type { ApiKeys } from "./http/auth.ts";
import type { Lifecycle } from "./http/lifecycle.ts";
import { listen } from "./http/listen.ts";
import { factsFor, openText, prepare, servedModelOf } from "./open-model.ts";
import { expectWritable } from "./recording/file.ts";
import type { StartEvents } from "./running-server.ts";
import { expectGuarded, openKeys, openLedger } from "./server-parts.ts";
import { openTraces } from "./trace/open-traces.ts";

/** Opens a part once, when it is first asked for. */
export type Part<Value> = () => Promise<Value>;

/** Parts in the order in which a start asks for them. */
export class Parts {
  readonly #all: Part<unknown>[] = [];
  readonly #closings: (() => unknown)[] = [];

  /** Adds a part. `open` throws an error with a sentence for people if the part refuses the start. */
  add<Value>(open: () => Value | Promise<Value>, close?: (value: Value) => unknown): Part<Value> {
    let opened: Promise<Value> | null = null;
    const openIt = async (): Promise<Value> => {
      const value = await open();
      if (close !== undefined) this.#closings.push(() => close(value));
      return value;
    };
    const part = (): Promise<Value> => {
      opened ??= openIt();
      return opened;
    };
    this.#all.push(part);
    return part;
  }

  /** Opens every part. Resolves to the sentences of those that refuse; a start ends with the first one. */
  async refusals(): Promise<readonly string[]> {
    const sentences = new Set<string>();
    for (const part of this.#all) {
      try {
        await part();
      } catch (error) {
        sentences.add(error instanceof Error ? error.message : String(error));
      }
    }
    return [...sentences];
  }

  /** Closes the parts that have been opened, the last one first. */
  async close(): Promise<void> {
    for (const close of this.#closings.splice(0).reverse()) await close();
  }
}

/** Adds the parts that come before any model. */
export function addFirstParts(parts: Parts, config: Config) {
  return {
    guarded: parts.add(() => expectGuarded(config)),
    keys: parts.add(() => openKeys(config)),
    predecessor: parts.add(
      async () => (config.takeOver ? await findPredecessor(config) : null),
      (predecessor) => predecessor?.leave(),
    ),
  };
}

/** Adds the stores and the address. Both are null where a predecessor has them. */
export function addFront(
  parts: Parts,
  config: Config,
  lifecycle: Lifecycle,
  predecessor: Part<unknown>,
  jobsName: () => string | Promise<string>,
) {
  const isFree = async (): Promise<boolean> => (await predecessor()) === null;
  return {
    stores: parts.add(
      async (): Promise<Stores | null> => ((await isFree()) ? openStores(config, await jobsName()) : null),
      (stores) => stores !== null && closeStores(stores),
    ),
    address: parts.add(
      async () => ((await isFree()) ? listen(config, lifecycle, refusalOn) : null),
      (server) => server?.kill(),
    ),
  };
}

/** Adds the ledger of keys and the traces. */
export function addAccounts(parts: Parts, config: Config, keys: Part<ApiKeys>) {
  return {
    ledger: parts.add(
      async () => openLedger(config, await keys()),
      (ledger) => ledger.close(),
    ),
    traces: parts.add(
      async () => await openTraces(config),
      (traces) => traces?.close(),
    ),
  };
}

/** Parts of a server of one model, in `dir` or, if that is null, the one that comes with Bunting. */
export function openingOf(
  config: Config,
  dir: string | null,
  { onPlan }: Pick<StartEvents, "onPlan">,
  lifecycle: Lifecycle,
) {
  const parts = new Parts();
  const { guarded, keys, predecessor } = addFirstParts(parts, config);
  const prepared = parts.add(
    async () =>
      await prepare(config, dir ?? (await demoModelFolder()), (plan) => {
        expectText(plan.folder.dir);
        onPlan(plan);
      }),
  );
  const { ledger, traces } = addAccounts(parts, config, keys);
  const recording = parts.add(() => {
    if (config.record !== null) expectWritable(config.record);
  });
  const text = parts.add(
    async () => openText((await prepared()).folder.dir, config),
    (opened) => opened.encoder.close(),
  );
  const model = parts.add(async () => servedModelOf(config, await prepared(), await text()));
  const programModels = parts.add(async () =>
    config.programs === null ? new Map() : readProgramModels(config.programs, await model()),
  );
  const jobsName = async (): Promise<string> => (await prepared()).names[0]!;
  const front = addFront(parts, config, lifecycle, predecessor, jobsName);
  const facts = parts.add(async () => factsFor(config, await prepared(), await text()));
  return {
    parts,
    guarded,
    keys,
    predecessor,
    prepared,
    ledger,
    traces,
    recording,
    text,
    model,
    programModels,
    ...front,
    facts,
  };
}

export type Opening = ReturnType<typeof openingOf>;
