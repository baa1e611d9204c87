/** Numbers of 32 bits, as many as come: four bytes each, and as many again while it grows. */
export class Int32List {
  #values = new Int32Array(1024);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Those there are; not to be kept while more come. */
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
