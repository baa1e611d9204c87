/** Growable list of 32-bit numbers, four bytes each; doubles its buffer when full. */
export class Int32List {
  #values = new Int32Array(1024);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** View of the current values; invalid after the next `push`. */
  get values(): Int32Array {
    return this.#values.subarray(0, this.#length);
  }

  at(index: number): number {
    return this.#values[index]!;
  }

  push(value: number): void {
    if (this.#length === this.#values.length) {
      const larger = new Int32Array(2 * this.#length);
      larger.set(this.#values);
      this.#values = larger;
    }
    this.#values[this.#length] = value;
    this.#length += 1;
  }
}
