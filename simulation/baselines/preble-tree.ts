import { assert } from "../../base/assert.ts";

/**
 * Node of the global tree: pages [first, end) of every prompt through it. An engine that caches a node caches
 * its parent.
 */
export class PrebleNode {
  parent: PrebleNode | null;
  first: number;
  /** Hashes, one per page (cache/page-hash.ts). */
  hashes: Float64Array;
  readonly children = new Map<number, PrebleNode>();
  /** GPUs that cache the node, as far as the global scheduler knows. */
  readonly holders: Set<number>;
  /** Requests of the window H through the node, by GPU, and their prefill times in whole microseconds. */
  readonly hits: number[];
  readonly prefillUs: number[];
  /** GPU that the next request goes to, as one more holder; null: no replication. */
  replica: number | null = null;
  /** Earliest time of the next replication. */
  replicableMs = 0;

  constructor(parent: PrebleNode | null, first: number, hashes: Float64Array, like: PrebleNode | number) {
    this.parent = parent;
    this.first = first;
    this.hashes = hashes;
    const isNew = typeof like === "number";
    this.holders = new Set(isNew ? [] : like.holders);
    this.hits = isNew ? new Array<number>(like).fill(0) : [...like.hits];
    this.prefillUs = isNew ? new Array<number>(like).fill(0) : [...like.prefillUs];
  }

  get end(): number {
    return this.first + this.hashes.length;
  }
}

/**
 * Preble's global prefix tree (arXiv:2407.00023 §3.2): per node its tokens, the GPUs that cache it, and the
 * requests per GPU that share it within the window H. A node with neither holders nor requests is removed.
 * Tokens are counted in pages.
 */
export class PrebleTree {
  readonly #gpus: number;
  readonly #root: PrebleNode;
  /** Cached nodes by GPU, least recently used first, parents after their children. */
  readonly #used: Set<PrebleNode>[];
  readonly #pages: number[];

  constructor(gpus: number) {
    this.#gpus = gpus;
    this.#root = new PrebleNode(null, 0, new Float64Array(0), gpus);
    this.#used = Array.from({ length: gpus }, () => new Set());
    this.#pages = Array.from({ length: gpus }, () => 0);
  }

  /** Returns the number of pages that a GPU caches. */
  pagesOn(gpu: number): number {
    return this.#pages[gpu]!;
  }

  /** Returns the nodes of a GPU in the expected order of eviction (LRU, §3.3). */
  leastRecent(gpu: number): Iterable<PrebleNode> {
    return this.#used[gpu]!;
  }

  /**
   * Matches a path: the nodes with pages of it, from the root on, the last one perhaps in part; and the
   * leading pages that each GPU caches.
   */
  match(path: Float64Array): { readonly nodes: readonly PrebleNode[]; readonly found: readonly number[] } {
    const nodes: PrebleNode[] = [];
    const found = new Array<number>(this.#gpus).fill(0);
    let depth = 0;
    for (let node = this.#root.children.get(path[0]!); node !== undefined; ) {
      nodes.push(node);
      const end = commonEnd(node, path);
      for (const gpu of node.holders) if (found[gpu] === depth) found[gpu] = end;
      depth = end;
      node = depth === node.end ? node.children.get(path[depth]!) : undefined;
    }
    return { nodes, found };
  }

  /**
   * Adds a request whose path the GPU will cache completely. Returns the node at the path's end; null for an
   * empty path.
   */
  insert(path: Float64Array, gpu: number, prefillUs: number): PrebleNode | null {
    if (path.length === 0) return null;
    const end = this.#endOf(path);
    for (const node of pathTo(end)) {
      node.hits[gpu]! += 1;
      node.prefillUs[gpu]! += prefillUs;
      this.#use(node, gpu);
    }
    return end;
  }

  /**
   * Removes a request that ended at this node from the window. `forgets`: treat unrequested nodes as evicted,
   * for engines without KV events.
   */
  expire(end: PrebleNode, gpu: number, prefillUs: number, forgets: boolean): void {
    for (const node of pathTo(end)) {
      node.hits[gpu]! -= 1;
      node.prefillUs[gpu]! -= prefillUs;
      if (forgets && node.hits[gpu] === 0) this.#drop(node, gpu);
    }
    this.#prune(end);
  }

  /** Marks the path as cached by the GPU. */
  cache(path: Float64Array, gpu: number): void {
    if (path.length > 0) for (const node of pathTo(this.#endOf(path))) this.#use(node, gpu);
  }

  /** Marks the path from page `from` on, and everything below, as evicted by the GPU. */
  evict(path: Float64Array, from: number, gpu: number): void {
    const node = this.match(path).nodes.find((node) => commonEnd(node, path) > from);
    if (node === undefined) return;
    if (node.first < from) this.#split(node, from);
    this.release(node, gpu);
  }

  /** Removes the GPU from the holders of the node and its subtree. */
  release(node: PrebleNode, gpu: number): void {
    for (const child of [...node.children.values()]) if (child.holders.has(gpu)) this.release(child, gpu);
    this.#drop(node, gpu);
    this.#prune(node);
  }

  /** Marks the GPU's cache as empty. */
  clear(gpu: number): void {
    for (const child of [...this.#root.children.values()]) this.release(child, gpu);
  }

  /** Descends the path and splits the tree so that a node ends there. */
  #endOf(path: Float64Array): PrebleNode {
    let node = this.#root;
    while (node.end < path.length) {
      const child = node.children.get(path[node.end]!);
      if (child === undefined) {
        const leaf = new PrebleNode(node, node.end, path.slice(node.end), this.#gpus);
        node.children.set(leaf.hashes[0]!, leaf);
        return leaf;
      }
      const end = commonEnd(child, path);
      node = end < child.end ? this.#split(child, end) : child;
    }
    return node;
  }

  /** Splits a node before page `at`; returns the new upper part. */
  #split(node: PrebleNode, at: number): PrebleNode {
    const parent = node.parent!;
    const upper = new PrebleNode(parent, node.first, node.hashes.slice(0, at - node.first), node);
    node.hashes = node.hashes.slice(at - node.first);
    node.first = at;
    node.parent = upper;
    parent.children.set(upper.hashes[0]!, upper);
    upper.children.set(node.hashes[0]!, node);
    // A parent is as recent as its children, and comes after them.
    for (const gpu of upper.holders) this.#used[gpu] = withAfter(this.#used[gpu]!, node, upper);
    return upper;
  }

  #use(node: PrebleNode, gpu: number): void {
    if (!node.holders.has(gpu)) this.#pages[gpu]! += node.hashes.length;
    node.holders.add(gpu);
    this.#used[gpu]!.delete(node);
    this.#used[gpu]!.add(node);
  }

  #drop(node: PrebleNode, gpu: number): void {
    if (!node.holders.delete(gpu)) return;
    this.#pages[gpu]! -= node.hashes.length;
    this.#used[gpu]!.delete(node);
  }

  #prune(end: PrebleNode): void {
    for (let node = end; node.parent !== null; node = node.parent) {
      if (node.children.size > 0 || node.holders.size > 0 || node.hits.some((count) => count > 0)) return;
      assert(node.parent.children.delete(node.hashes[0]!), "a parent finds its child");
    }
  }
}

/** Yields the node and its ancestors, without the root. */
function* pathTo(end: PrebleNode): Generator<PrebleNode> {
  for (let node = end; node.parent !== null; node = node.parent) yield node;
}

/** End of the common part of a node and a path through it. */
function commonEnd({ first, hashes }: PrebleNode, path: Float64Array): number {
  const most = Math.min(hashes.length, path.length - first);
  let equal = 1;
  while (equal < most && hashes[equal] === path[first + equal]) equal += 1;
  return first + equal;
}

function withAfter(nodes: ReadonlySet<PrebleNode>, older: PrebleNode, added: PrebleNode): Set<PrebleNode> {
  const result = new Set<PrebleNode>();
  for (const node of nodes) {
    result.add(node);
    if (node === older) result.add(added);
  }
  return result;
}

/** Returns L of algorithm 2 for the requests through one node, where an answer takes `decodeMs`. */
export function subtreeLoadMs({ hits, prefillUs }: PrebleNode, gpu: number, decodeMs: number): number {
  return prefillUs[gpu]! / 1000 + hits[gpu]! * decodeMs;
}
