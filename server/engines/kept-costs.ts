/**
 * What steps cost on a device, in a small file beside its model's packed weights: the next start need not measure it at length. There is one for
 * each processor or GPU, and for each choice of how it computes. A file that is damaged, or of other weights or kernels, is as good as
 * none; it may be deleted at any time.
 */
import { readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import type { PackedPlace } from "../../gpu/native/packed-cache.ts";
import { LinearCost, type LinearState } from "../../scheduler/cost/linear.ts";

/** Of what is measured, and how: goes up when numbers of before mean something else. */
const COSTS_VERSION = 2;
/** A file of ours is not longer. */
const FILE_BYTES_MAX = 4096;

/** What costs were measured with, besides the weights. */
export interface MeasuredWith {
  /** Path of the native library. */
  readonly library: string;
  /** Of the processor, or of the GPU. */
  readonly machine: string;
  /** Everything that was chosen of how the device computes, as plain data. */
  readonly choices: unknown;
}

export class KeptCosts {
  readonly path: string;
  /** What the numbers are true of. */
  readonly #facts: readonly unknown[];

  constructor(place: PackedPlace, { library, machine, choices }: MeasuredWith) {
    const { size, mtimeMs } = statSync(library);
    const kind = sha256([machine, choices]);
    this.path = place.path.replace(/\.bunting-packed$/, `-${kind.slice(0, 6)}.bunting-costs`);
    this.#facts = [COSTS_VERSION, kind, Buffer.from(place.key).toString("hex"), size, mtimeMs];
  }

  /** What was kept of the same; null if nothing was. */
  read(): LinearCost | null {
    try {
      if (statSync(this.path).size > FILE_BYTES_MAX) return null;
      const { costs, seal } = JSON.parse(readFileSync(this.path, "utf8"));
      return seal === this.#sealOf(costs) ? LinearCost.from(costs) : null;
    } catch {
      return null; // there is none, or none that can be read
    }
  }

  /** Where it cannot be written, the next start measures again. */
  write({ state }: LinearCost): void {
    const unfinished = `${this.path}.new`; // so that a start that is killed leaves no half of one
    try {
      rmSync(unfinished, { force: true }); // of a start that was killed; what is a link is not written through
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
