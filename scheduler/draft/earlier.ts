import { type Keyed, PerKey } from "./per-key.ts";
import { END, SuffixText } from "./suffix-text.ts";

/** Capacity in tokens of each of a key's two texts. */
const TEXT_MAX = 16_384;
/** Initial capacity in tokens. */
const TEXT_LEAST = 1024;
/** Bytes per token, its entries in the n-gram indexes included. */
const TOKEN_BYTES = 20;
/** Most bytes of all keys' texts. */
const BYTES_MAX = 32 * 2 ** 20;
/** Shortest answer that is kept. */
const ANSWER_LEAST = 8;

/**
 * Earlier answers of one key, the latest 16,384 to 32,768 tokens: when the newer of two texts is full, the
 * older one is dropped. Lookups index a text, a piece per call.
 */
export class EarlierAnswers {
  /** The newer text first. */
  #parts: Part[] = [];

  get bytes(): number {
    return this.#parts.reduce((sum, { tokens }) => sum + TOKEN_BYTES * tokens.length, 0);
  }

  /** The fully indexed texts, the newer first. Continues to index the others. */
  texts(): readonly SuffixText[] {
    return this.#parts.flatMap((part) => (part.text.extend(part.tokens, part.length) ? part.text : []));
  }

  add(answer: Int32Array): void {
    const kept = answer.subarray(-(TEXT_MAX - 1));
    const [first] = this.#parts;
    const isFull = first === undefined || first.length + kept.length + 1 > TEXT_MAX;
    const part = isFull ? new Part() : first;
    if (isFull) this.#parts = [part, ...this.#parts.slice(0, 1)];
    part.add(kept);
  }
}

class Part {
  readonly text = new SuffixText();
  tokens = new Int32Array(TEXT_LEAST);
  length = 0;

  /** Appends an answer and the sentinel `END`. */
  add(answer: Int32Array): void {
    const end = this.length + answer.length;
    if (end >= this.tokens.length) {
      let size = this.tokens.length;
      while (size <= end) size *= 2;
      const larger = new Int32Array(size);
      larger.set(this.tokens);
      this.tokens = larger;
    }
    this.tokens.set(answer, this.length);
    this.tokens[end] = END;
    this.length = end + 1;
  }
}

/** Earlier answers by key, bounded per key and in all: evicts the least recently used keys. */
export class EarlierTexts {
  readonly #byKey = new PerKey(() => new EarlierAnswers());

  of(spec: Keyed): EarlierAnswers {
    return this.#byKey.of(spec);
  }

  /** Bytes of all texts and indexes. */
  get bytes(): number {
    let bytes = 0;
    for (const [, answers] of this.#byKey.all) bytes += answers.bytes;
    return bytes;
  }

  add(spec: Keyed, answer: Int32Array): void {
    if (answer.length < ANSWER_LEAST) return;
    const own = this.#byKey.of(spec);
    own.add(answer);
    let bytes = this.bytes;
    for (const [key, answers] of this.#byKey.all) {
      if (bytes <= BYTES_MAX || answers === own) break;
      bytes -= answers.bytes;
      this.#byKey.drop(key);
    }
  }
}
