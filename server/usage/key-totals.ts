import { addUse, keyId, type LabelledUse, noUse, type UsageEntry, type UseSums } from "./use.ts";

/** Label of keys beyond the bound. */
const OTHERS = "other";
/** Label of requests on a server without keys. */
const NOBODY = "none";

/** Use of keys since the start of the process: of the first ones to be used each, of the others together. */
export class KeyTotals implements LabelledUse {
  readonly #max: number;
  readonly #nameOf: (tenant: string) => string | null;
  readonly #sums = new Map<string, UseSums>();
  #others: UseSums | null = null;

  /** `max`: keys that are told apart. `nameOf`: name of a key; null: it has none. */
  constructor(max: number, nameOf: (tenant: string) => string | null) {
    this.#max = max;
    this.#nameOf = nameOf;
  }

  charge(tenant: string, entry: UsageEntry): void {
    addUse(this.#sumsOf(tenant), entry);
  }

  /** Sums by label. Keys of the same name are one. */
  byLabel(): ReadonlyMap<string, UseSums> {
    const labels = new Map<string, UseSums>();
    for (const [tenant, sums] of this.#sums) {
      const label = tenant === "" ? NOBODY : (this.#nameOf(tenant) ?? keyId(tenant));
      labels.set(label, together(labels.get(label), sums));
    }
    if (this.#others !== null) labels.set(OTHERS, together(labels.get(OTHERS), this.#others));
    return labels;
  }

  #sumsOf(tenant: string): UseSums {
    const known = this.#sums.get(tenant);
    if (known !== undefined) return known;
    const sums = noUse();
    if (this.#sums.size >= this.#max) {
      this.#others ??= sums;
      return this.#others;
    }
    this.#sums.set(tenant, sums);
    return sums;
  }
}

function together(one: UseSums | undefined, other: UseSums): UseSums {
  if (one === undefined) return other;
  const names = Object.keys(other) as (keyof UseSums)[];
  return Object.fromEntries(names.map((name) => [name, one[name] + other[name]])) as unknown as UseSums;
}
