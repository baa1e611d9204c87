import { compareBytes } from "../regex/expressions.ts";

/**
 * Trie of byte strings as flat arrays, so that threads can share it. Nodes are numbered in depth-first order,
 * the root being 0. So everything below a node is a range of nodes and of tokens.
 */
export interface Trie {
  /** Incoming byte of each node. */
  readonly bytes: Uint8Array;
  /** First node after the subtree of each node. */
  readonly ends: Int32Array;
  /** Offset in `tokens` of each node's own tokens; those of its subtree follow. One entry more than nodes. */
  readonly firstTokens: Int32Array;
  /** Depth of each node in bytes. */
  readonly depths: Uint16Array;
  /** Length of the longest text in bytes, rounded up to a power of two. */
  readonly height: number;
  readonly tokens: Int32Array;
}

/**
 * Logits mask, one bit per token: bit t % 32 of word t / 32 for token t. Shared by all texts in the same
 * state, so it is never written after it is made.
 */
export type Mask = Uint32Array;

/** Bytes of a model's tokens. Plain data in shared memory, made once and used by every engine's thread. */
export interface Vocabulary {
  /** Tokens that the model can sample. */
  readonly size: number;
  readonly trie: Trie;
  /** Offset of each token in `bytes`; one entry more than tokens. Tokens without text have no bytes. */
  readonly offsets: Int32Array;
  readonly bytes: Uint8Array;
  /**
   * Flags: 1 for added tokens, which the tokenizer splits off before merging the rest; no merge produces
   * them.
   */
  readonly isAdded: Uint8Array;
}

/**
 * Byte that occurs in no UTF-8 text. It begins the bytes of a control token, so that no constraint accepts
 * one as text.
 */
export const CONTROL_BYTE = 0xff;

/** Bytes of a control token; `text` is its text in UTF-8. */
export function controlBytes(text: Uint8Array): Uint8Array {
  return Uint8Array.of(CONTROL_BYTE, ...text);
}

/** Vocabulary of tokens 0 … size-1; `bytesOf` returns a token's text or its `controlBytes`. */
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

/** Bytes of a token. */
export function tokenBytes({ offsets, bytes }: Vocabulary, token: number): Uint8Array {
  return bytes.subarray(offsets[token]!, offsets[token + 1]!);
}

/** Token and its bytes, or part of them. */
export interface TokenText {
  readonly text: Uint8Array;
  readonly token: number;
}

/** Builds a trie of texts; several tokens may have the same text. */
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
  /** Nodes from the root to the end of the previous text. */
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

/** Child of `node` on the byte; -1 if there is none. */
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
