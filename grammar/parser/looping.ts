import type { Trie } from "../mask/vocabulary.ts";
import { noPlace, type Parser, type Place } from "./parser.ts";

/**
 * Subtrees of a trie in which every byte leaves the parser in the same state. In free text nearly every byte
 * does, except those that may begin a delimiter. So most of a vocabulary need not be walked.
 */
export class Looping {
  readonly #trie: Trie;
  /** Nodes before each node whose byte leads to another state. */
  readonly #othersBefore: Int32Array;

  constructor(trie: Trie, isLooping: (byte: number) => boolean) {
    this.#trie = trie;
    const isOther = Uint8Array.from({ length: 256 }, (_, byte) => (isLooping(byte) ? 0 : 1));
    const { bytes } = trie;
    this.#othersBefore = new Int32Array(bytes.length + 1);
    for (let node = 0; node < bytes.length; node++)
      this.#othersBefore[node + 1] = this.#othersBefore[node]! + isOther[bytes[node]!]!;
  }

  /** True if the node's own byte and all bytes below it loop. */
  isWhole(node: number): boolean {
    return this.#othersBefore[this.#trie.ends[node]!] === this.#othersBefore[node];
  }
}

/** Results by trie and by looping bytes. They are few: each kind of free text has one set of bytes. */
const known = new WeakMap<Trie, Map<string, Looping>>();
const KNOWN_MAX = 16;

/**
 * Bytes after which the place is the same as before; null if they are fewer than half. Takes 256 steps of the
 * parser.
 */
export function loopingOf(parser: Parser, place: Place, trie: Trie): Looping | null {
  const looping = Uint8Array.from({ length: 256 }, (_, byte) => (leadsBack(parser, place, byte) ? 1 : 0));
  if (looping.reduce((sum, one) => sum + one, 0) < 128) return null;
  let ofTrie = known.get(trie);
  if (ofTrie === undefined) {
    ofTrie = new Map();
    known.set(trie, ofTrie);
  }
  const key = looping.join("");
  let found = ofTrie.get(key);
  if (found === undefined) {
    found = new Looping(trie, (byte) => looping[byte] === 1);
    if (ofTrie.size >= KNOWN_MAX) ofTrie.clear();
    ofTrie.set(key, found);
  }
  return found;
}

function leadsBack(parser: Parser, place: Place, byte: number): boolean {
  const next = noPlace();
  if (!parser.follow(place, byte, next) || next.count !== place.count) return false;
  for (let i = 0; i < place.count; i++)
    if (next.sets[i] !== place.sets[i] || next.lexes[i] !== place.lexes[i]) return false;
  return true;
}
