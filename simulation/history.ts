/**
 * Running hash of all events, in two halves of 32 bits. Equal histories have equal hashes on every machine:
 * it hashes integers only, and times in whole microseconds.
 */
export class History {
  #low = 0x2545f491;
  #high = 0x6c078965;

  /** Adds an event of up to four integers of any size. */
  note(nowMs: number, a: number, b: number, c: number): void {
    const us = Math.round(nowMs * 1000);
    this.#mix(us);
    this.#mix(Math.floor(us / 0x1_0000_0000));
    this.#mix(a);
    this.#mix(b);
    this.#mix(c);
  }

  /** Hash as 16 hexadecimal digits. */
  get hash(): string {
    return hex(this.#high) + hex(this.#low);
  }

  #mix(value: number): void {
    this.#low = Math.imul(this.#low ^ value, 0x21f0aaad);
    this.#low ^= this.#low >>> 15;
    this.#high = Math.imul((this.#high + value) ^ this.#low, 0x735a2d97);
    this.#high ^= this.#high >>> 13;
  }
}

function hex(word: number): string {
  return (word >>> 0).toString(16).padStart(8, "0");
}
