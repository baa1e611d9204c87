/**
 * File of a device's step costs as estimated from served steps, with which the next start begins. There is
 * one per processor or GPU and per set of compute options. A damaged file, or one of other weights or
 * kernels, is ignored. Users may delete it at any time.
 */
import { readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import type { PackedPlace } from "../../gpu/native/packed-cache.ts";
import { LinearCost, type LinearState } from "../../scheduler/cost/linear.ts";

/** Schema version of the file; rises when its numbers change meaning. */
const COSTS_VERSION = 2;
/** Upper bound of the size of a valid file. */
const FILE_BYTES_MAX = 4096;

/** Conditions under which costs hold, besides the weights. */
export interface MeasuredWith {
  /** Path of the native library. */
  readonly library: string;
  /** Name of the processor or the GPU. */
  readonly machine: string;
  /** All compute options of the device, as plain data. */
  readonly choices: unknown;
}

export class KeptCosts {
  readonly path: string;
  /** Facts that must match for the numbers to apply. */
  readonly #facts: readonly unknown[];

  constructor(place: PackedPlace, { library, machine, choices }: MeasuredWith) {
    const { size, mtimeMs } = statSync(library);
    const kind = sha256([machine, choices]);
    this.path = place.path.replace(/\.bunting-packed$/, `-${kind.slice(0, 6)}.bunting-costs`);
    this.#facts = [COSTS_VERSION, kind, Buffer.from(place.key).toString("hex"), size, mtimeMs];
  }

  /** Costs kept under the same conditions; null if there are none. */
  read(): LinearCost | null {
    try {
      if (statSync(this.path).size > FILE_BYTES_MAX) return null;
      const { costs, seal } = JSON.parse(readFileSync(this.path, "utf8"));
      return seal === this.#sealOf(costs) ? LinearCost.from(costs) : null;
    } catch {
      return null; // the file is absent or unreadable
    }
  }

  /** Writes the costs; if that fails, the next start estimates them. */
  write({ state }: LinearCost): void {
    const unfinished = `${this.path}.new`; // a killed start leaves no partial file
    try {
      rmSync(unfinished, { force: true }); // left by a killed start; never writes through a link
      writeFileSync(unfinished, `${JSON.stringify({ costs: state, seal: this.#sealOf(state) })}\n`, {
        flag: "wx",
      });
      renameSync(unfinished, this.path);
    } catch {
      rmSync(unfinished, { force: true });
    }
  }

  #sealOf(costs: LinearState): string {
    return sha256([this.#facts, costs]);
  }
}

function sha256(value: unknown): string {
  return new Bun.CryptoHasher("sha256").update(JSON.stringify(value)).digest("hex");
}
