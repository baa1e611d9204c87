import { compareBytes } from "../regex/expressions.ts";

/**
 * A trie of byte strings as flat arrays, so that threads can share it. Nodes are numbered in the order of a walk from the
 * root, 0, down; so everything below a node is a range of nodes, and of tokens.
 */
export interface Trie {
  /** By node, the byte that leads to it. */
  readonly bytes: Uint8Array;
  /** By node, the node after all that are below it. */
  readonly ends: Int32Array;
  /** By node, where its own tokens begin in `tokens`; those of everything below follow. One entry more than nodes. */
  readonly firstTokens: Int32Array;
  /** By node, how many bytes lead to it. */
  readonly depths: Uint16Array;
  /** Bytes of the longest way down, rounded up to a power of two. */
  readonly height: number;
  readonly tokens: Int32Array;
}

/** One bit per token, bit t % 32 of word t / 32 for token t. Shared by all texts at the same place: never written to once it
 *  is made. */
export type Mask = Uint32Array;

/** What the tokens of a model stand for. Plain data over shared memory: made once, used by every engine's thread. */
export interface Vocabulary {
  /** Tokens that the model can draw. */
  readonly size: number;
  readonly trie: Trie;
  /** By token, where its bytes begin in `bytes`; one entry more than tokens. Tokens that are no text have none. */
  readonly offsets: Int32Array;
  readonly bytes: Uint8Array;
  /** By token, 1 for those that are cut out of a text before the rest of it is made of pieces: no merges lead to them. */
  readonly isAdded: Uint8Array;
}

/** In no text in UTF-8: it begins the bytes of a control token, so that no constraint takes one for text. */
export const CONTROL_BYTE = 0xff;

/** What a control token stands for; `text` is its text in UTF-8. */
export function controlBytes(text: Uint8Array): Uint8Array {
  return Uint8Array.of(CONTROL_BYTE, ...text);
}

/** Tokens 0 … size-1, of which `bytesOf` gives the text, or `controlBytes`. */
export function vocabularyOf(
  size: number,
  bytesOf: (token: number) => Uint8Array,
  isAdded: (token: number) => boolean = (token) => bytesOf(token)[0] === CONTROL_BYTE,
): Vocabulary {
  const all = Array.from({ length: size }, (_, token) => bytesOf(token));
  const offsets = new Int32Array(new SharedArrayBuffer(4 * (size + 1)));
  all.forEach((bytes, token) => {
    offsets[token + 1] = offsets[token]! + bytes.length;
  });
  const bytes = new Uint8Array(new SharedArrayBuffer(offsets[size]!));
  all.forEach((one, token) => {
    bytes.set(one, offsets[token]!);
  });
  const added = new Uint8Array(new SharedArrayBuffer(size));
  for (let token = 0; token < size; token++) added[token] = isAdded(token) ? 1 : 0;
  const entries = all.map((text, token) => ({ text, token })).filter(({ text }) => text.length > 0);
  return { size, trie: trieOf(entries), offsets, bytes, isAdded: added };
}

/** The bytes of a token. */
export function tokenBytes({ offsets, bytes }: Vocabulary, token: number): Uint8Array {
  return bytes.subarray(offsets[token]!, offsets[token + 1]!);
}

/** A token and its bytes, or some of them. */
export interface TokenText {
  readonly text: Uint8Array;
  readonly token: number;
}

/** A trie of texts; several tokens may have the same. */
export function trieOf(entries: readonly TokenText[]): Trie {
  const sorted = [...entries].sort((a, b) => compareBytes(a.text, b.text) || a.token - b.token);
  let nodes = 1;
  for (const [index, { text }] of sorted.entries())
    nodes += text.length - commonLength(sorted[index - 1]?.text, text);
  const bytes = new Uint8Array(new SharedArrayBuffer(nodes));
  const ends = new Int32Array(new SharedArrayBuffer(4 * nodes));
  const firstTokens = new Int32Array(new SharedArrayBuffer(4 * (nodes + 1)));
  const depths = new Uint16Array(new SharedArrayBuffer(2 * nodes));
  const tokens = new Int32Array(new SharedArrayBuffer(4 * sorted.length));
  /** From the root to the text before. */
  const path = [0];
  let next = 1;
  const close = (depth: number): void => {
    while (path.length > depth + 1) ends[path.pop()!] = next;
  };
  sorted.forEach(({ text, token }, index) => {
    close(commonLength(sorted[index - 1]?.text, text));
    for (let depth = path.length - 1; depth < text.length; depth++) {
      bytes[next] = text[depth]!;
      firstTokens[next] = index;
      depths[next] = depth + 1;
      path.push(next++);
    }
    tokens[index] = token;
  });
  close(0);
  ends[0] = nodes;
  firstTokens[nodes] = sorted.length;
  const deepest = depths.reduce((most, depth) => Math.max(most, depth), 0);
  let height = 1;
  while (height < deepest) height *= 2;
  return { bytes, ends, firstTokens, depths, height, tokens };
}

/** The node below `node` along the byte; -1: there is none. */
export function childOf(trie: Trie, node: number, byte: number): number {
  const end = trie.ends[node]!;
  for (let child = node + 1; child < end; child = trie.ends[child]!) {
    const at = trie.bytes[child]!;
    if (at === byte) return child;
    if (at > byte) return -1;
  }
  return -1;
}

function commonLength(a: Uint8Array | undefined, b: Uint8Array): number {
  if (a === undefined) return 0;
  const shorter = Math.min(a.length, b.length);
  let length = 0;
  while (length < shorter && a[length] === b[length]) length++;
  return length;
}
