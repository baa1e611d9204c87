/** Graph behind values, and its encoding for the server. */
import type { FailedValue } from "./errors.ts";

/** Final state of a value. */
export type Settled = { readonly value: string | readonly string[] } | { readonly failure: FailedValue };

/** Value of a graph. */
export interface Cell {
  /** Prefix of its name on the server. */
  readonly label: string;
  /**
   * Call or block that computes the value. null if the value is known, or if a block binds it for its bodies.
   */
  producer: CallNode | Block | null;
  settled: Settled | null;
  /** Program that computes the value now. */
  running: Running | null;
}

/** Part of a prompt: template text, constant text, an input value, or an output. */
export type Piece =
  | string
  | { readonly constant: string }
  | { readonly input: Cell; readonly transforms: readonly unknown[] }
  | { readonly output: Cell };

/** Bodies of choices whose functions are running now, outermost first. */
const open: symbol[] = [];

/** Runs `make`; the calls that it makes belong to the body and run only if that body is chosen. */
export function inside<T>(body: symbol, make: () => T): T {
  open.push(body);
  try {
    return make();
  } finally {
    open.pop();
  }
}

/** Open bodies, for a node being made. */
export function bodiesOpen(): readonly symbol[] {
  return [...open];
}

/** Call of a model. A single message without a role is a text to complete. */
export interface CallNode {
  readonly kind: "call";
  /** Bodies of choices in which it was made. */
  readonly inside: readonly symbol[];
  readonly messages: { readonly role: string | null; readonly pieces: readonly Piece[] }[];
  readonly outputs: {
    readonly cell: Cell;
    readonly transforms: readonly unknown[];
    readonly sampling: Readonly<Record<string, unknown>>;
  }[];
}

/** Block of calls that run once per item, for one choice, or until a test passes. */
export interface Block {
  readonly kind: "map" | "reduce" | "choose" | "repeat";
  readonly inside: readonly symbol[];
  /** Values that the block reads, by field of the API. */
  readonly reads: Readonly<Record<string, Cell>>;
  readonly binds: Readonly<Record<string, Cell>>;
  /** `fields` of a case of a choice; null for the default case. */
  readonly bodies: readonly {
    readonly body: symbol;
    readonly fields: object | null;
    readonly result: Cell;
  }[];
  readonly fields: object;
  readonly output: Cell;
}

type Json = Record<string, unknown>;

/** Graph as a body of POST /v1/programs, without its awaited values. */
export interface Written {
  readonly body: { readonly variables: Json; readonly calls: readonly Json[] };
  /** Names of all its unknown values. */
  readonly names: ReadonlyMap<Cell, string>;
}

/** Writes all unknown values and calls on which the values depend. */
export function writeGraph(wanted: readonly Cell[]): Written {
  const writer = new Writer();
  for (const cell of wanted) writer.cell(cell);
  return writer.written();
}

/** All unknown values on which the values depend, including themselves. */
export function cellsBehind(wanted: readonly Cell[]): ReadonlySet<Cell> {
  const found = new Set<Cell>();
  const open = [...wanted];
  for (let cell = open.pop(); cell !== undefined; cell = open.pop()) {
    if (found.has(cell) || cell.settled !== null) continue;
    found.add(cell);
    if (cell.producer !== null) open.push(...readBy(cell.producer), ...writtenBy(cell.producer));
  }
  return found;
}

/** Failure that makes a value impossible: that of a value it depends on. Null if there is none. */
export function failureBehind(wanted: Cell): FailedValue | null {
  const seen = new Set<Cell>();
  const open = [wanted];
  for (let cell = open.pop(); cell !== undefined; cell = open.pop()) {
    if (seen.has(cell)) continue;
    seen.add(cell);
    if (cell.settled === null) open.push(...(cell.producer === null ? [] : readBy(cell.producer)));
    else if ("failure" in cell.settled) return cell.settled.failure;
  }
  return null;
}

function readBy(node: CallNode | Block): Cell[] {
  if (node.kind !== "call") return [...Object.values(node.reads), ...node.bodies.map(({ result }) => result)];
  return node.messages.flatMap(({ pieces }) =>
    pieces.flatMap((piece) => (typeof piece === "object" && "input" in piece ? [piece.input] : [])),
  );
}

function writtenBy(node: CallNode | Block): readonly Cell[] {
  return node.kind === "call" ? node.outputs.map(({ cell }) => cell) : [node.output];
}

/**
 * Scope of calls: the program, or a block's body. A body holds calls that depend on its bound values, or were
 * made in it.
 */
interface Scope {
  readonly body: symbol | null;
  readonly bound: ReadonlySet<Cell>;
  readonly calls: Json[];
}

class Writer {
  readonly #variables: Json = {};
  readonly #names = new Map<Cell, string>();
  readonly #done = new Set<CallNode | Block>();
  readonly #program: Scope = { body: null, bound: new Set(), calls: [] };
  /** Open scopes, innermost last. */
  readonly #scopes: Scope[] = [this.#program];
  readonly #dependents = new Map<Cell, Map<Cell, boolean>>();
  #count = 0;

  written(): Written {
    const names = new Map([...this.#names].filter(([cell]) => cell.settled === null));
    return { body: { variables: this.#variables, calls: this.#program.calls }, names };
  }

  /** Name of a value; first writes everything that it depends on. */
  cell(cell: Cell): string {
    const { settled, producer } = cell;
    const known = this.#names.get(cell);
    if (known !== undefined) return known;
    const name = this.#named(cell);
    if (settled !== null) {
      if ("failure" in settled) throw new Error("a value that failed is not computed again");
      this.#variables[name] = settled.value;
    } else if (producer !== null && !this.#done.has(producer)) {
      this.#done.add(producer);
      const scope = this.#scopeOf(producer);
      scope.calls.push(producer.kind === "call" ? this.#call(producer) : this.#block(producer));
    }
    return name;
  }

  #named(cell: Cell): string {
    const known = this.#names.get(cell);
    if (known !== undefined) return known;
    const name = `${cell.label.replace(/[^\w.-]/g, "_").slice(0, 100)}-${this.#count++}`;
    this.#names.set(cell, name);
    return name;
  }

  #constant(text: string): string {
    const name = `given-${this.#count++}`;
    this.#variables[name] = text;
    return name;
  }

  /** Innermost body in which the node was made, or whose bound values it depends on. */
  #scopeOf(node: CallNode | Block): Scope {
    const reads = readBy(node);
    return this.#scopes.findLast(
      ({ body, bound }) =>
        body === null ||
        node.inside.includes(body) ||
        [...bound].some((cell) => reads.some((read) => this.#dependsOn(read, cell))),
    )!;
  }

  #dependsOn(cell: Cell, bound: Cell): boolean {
    if (cell === bound) return true;
    if (cell.producer === null || cell.settled !== null) return false;
    let known = this.#dependents.get(bound);
    if (known === undefined) {
      known = new Map();
      this.#dependents.set(bound, known);
    }
    const before = known.get(cell);
    if (before !== undefined) return before;
    const depends = readBy(cell.producer).some((read) => this.#dependsOn(read, bound));
    known.set(cell, depends);
    return depends;
  }

  #call({ messages, outputs }: CallNode): Json {
    const inputs: Json = {};
    const place = (name: string): string => `{{${name}}}`;
    const textOf = (pieces: readonly Piece[]): string =>
      pieces
        .map((piece) => {
          // A variable carries text that only looks like a placeholder.
          if (typeof piece === "string") return piece.includes("{{") ? place(this.#constant(piece)) : piece;
          if ("constant" in piece) return place(this.#constant(piece.constant));
          if ("output" in piece) return place(this.#named(piece.output));
          const variable = this.cell(piece.input);
          if (piece.transforms.length === 0) return place(variable);
          const name = `in-${this.#count++}`;
          inputs[name] = { variable, transforms: piece.transforms };
          return place(name);
        })
        .join("");
    const [first] = messages;
    const prompt =
      first !== undefined && first.role === null
        ? { prompt: textOf(first.pieces) }
        : { messages: messages.map(({ role, pieces }) => ({ role, content: textOf(pieces) })) };
    const written = outputs.map(({ cell, transforms, sampling }) => [
      this.#named(cell),
      { ...sampling, transforms },
    ]);
    return { ...prompt, inputs, outputs: Object.fromEntries(written) };
  }

  #block({ kind, reads, binds, bodies, fields, output }: Block): Json {
    const named = (cells: Readonly<Record<string, Cell>>, name: (cell: Cell) => string): Json =>
      Object.fromEntries(Object.entries(cells).map(([field, cell]) => [field, name(cell)]));
    const block: Json = {
      ...named(reads, (cell) => this.cell(cell)),
      ...named(binds, (cell) => this.#named(cell)),
      ...fields,
      output: this.#named(output),
    };
    const bodyJson = ({ body, result }: Block["bodies"][number]): Json => {
      const scope: Scope = { body, bound: new Set(Object.values(binds)), calls: [] };
      this.#scopes.push(scope);
      const name = this.cell(result);
      this.#scopes.pop();
      return { calls: scope.calls, result: name };
    };
    if (kind !== "choose") return { ...block, ...bodyJson(bodies[0]!) };
    const cases: Json[] = [];
    for (const one of bodies) {
      if (one.fields === null) block.otherwise = bodyJson(one);
      else cases.push({ ...one.fields, ...bodyJson(one) });
    }
    return { ...block, cases };
  }
}

/** A program in progress. */
export interface Running {
  /** Resolves when the program has ended, with or without an error. */
  readonly over: Promise<void>;
}
