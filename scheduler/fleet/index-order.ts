import { type IndexNode, NEWER, NO_NODE, OLDER } from "./index-node.ts";

/**
 * LRU lists of the cached nodes, one per engine, in the expected order of eviction: stems after their
 * branches. The links are words of the nodes.
 */
export class IndexOrder {
  /** Nodes by id. */
  readonly #nodes: readonly IndexNode[];
  readonly #oldest: Int32Array;
  readonly #newest: Int32Array;

  constructor(nodes: readonly IndexNode[], engines: number) {
    this.#nodes = nodes;
    this.#oldest = new Int32Array(engines).fill(NO_NODE);
    this.#newest = new Int32Array(engines).fill(NO_NODE);
  }

  oldest(engine: number): IndexNode | null {
    return this.#node(this.#oldest[engine]!);
  }

  newer(node: IndexNode, engine: number): IndexNode | null {
    return this.#node(node.neighbour(NEWER, engine));
  }

  append(node: IndexNode, engine: number): void {
    this.#insert(node, engine, this.#newest[engine]!, NO_NODE);
  }

  /** Inserts `node` right after `older`. */
  insertAfter(older: IndexNode, node: IndexNode, engine: number): void {
    this.#insert(node, engine, older.id, older.neighbour(NEWER, engine));
  }

  remove(node: IndexNode, engine: number): void {
    this.#join(node.neighbour(OLDER, engine), node.neighbour(NEWER, engine), engine);
  }

  #insert(node: IndexNode, engine: number, older: number, newer: number): void {
    this.#join(older, node.id, engine);
    this.#join(node.id, newer, engine);
  }

  #join(older: number, newer: number, engine: number): void {
    if (older === NO_NODE) this.#oldest[engine] = newer;
    else this.#nodes[older]!.setNeighbour(NEWER, engine, newer);
    if (newer === NO_NODE) this.#newest[engine] = older;
    else this.#nodes[newer]!.setNeighbour(OLDER, engine, older);
  }

  #node(id: number): IndexNode | null {
    return id === NO_NODE ? null : this.#nodes[id]!;
  }
}
