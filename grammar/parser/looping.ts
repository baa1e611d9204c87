import type { Trie } from "../mask/vocabulary.ts";
import { noPlace, type Parser, type Place } from "./parser.ts";

/**
 * Parts of a trie along which a parser stays where it is. In free text nearly every byte leads back to the same state, all
 * but those with which a mark may begin: so most of a vocabulary need not be walked.
 */
export class Looping {
  readonly #trie: Trie;
  /** By node, how many bytes before it lead elsewhere. */
  readonly #othersBefore: Int32Array;

  constructor(trie: Trie, isLooping: (byte: number) => boolean) {
    this.#trie = trie;
    const isOther = Uint8Array.from({ length: 256 }, (_, byte) => (isLooping(byte) ? 0 : 1));
    const { bytes } = trie;
    this.#othersBefore = new Int32Array(bytes.length + 1);
    for (let node = 0; node < bytes.length; node++)
      this.#othersBefore[node + 1] = this.#othersBefore[node]! + isOther[bytes[node]!]!;
  }

  /** Whether all of the way to the node's end and below it leads back. */
  isWhole(node: number): boolean {
    return this.#othersBefore[this.#trie.ends[node]!] === this.#othersBefore[node];
  }
}

/** By trie and by the bytes that lead back. There are few: each kind of free text has its own. */
const known = new WeakMap<Trie, Map<string, Looping>>();
const KNOWN_MAX = 16;

/** Bytes after which a state is the same as before; null when they are few. Takes 256 steps of a parser. */
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
