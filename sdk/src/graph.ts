/** The graph behind values, and how it is written for the server. */
import type { FailedValue } from "./errors.ts";

/** What became of a value. */
export type Settled = { readonly value: string | readonly string[] } | { readonly failure: FailedValue };

/** One value of a graph. */
export interface Cell {
  /** What its name on the server begins with. */
  readonly label: string;
  /** null: it is known, or bound by a block to what it hands to its bodies. */
  producer: CallNode | Block | null;
  settled: Settled | null;
  /** The program that computes it now. */
  running: Running | null;
}

/** A part of a prompt: text of the template; text that was given; a value; a place to write. */
export type Piece =
  | string
  | { readonly constant: string }
  | { readonly input: Cell; readonly transforms: readonly unknown[] }
  | { readonly output: Cell };

/** Bodies of choices whose functions are being called now, outermost first. */
const open: symbol[] = [];

/** Calls that `make` makes belong to the body: they run only if it is chosen. */
export function inside<T>(body: symbol, make: () => T): T {
  open.push(body);
  try {
    return make();
  } finally {
    open.pop();
  }
}

/** Of a node that is made now. */
export function bodiesOpen(): readonly symbol[] {
  return [...open];
}

/** One call of a model. A single message without a role is a text to complete. */
export interface CallNode {
  readonly kind: "call";
  /** Bodies of choices that it was made in. */
  readonly inside: readonly symbol[];
  readonly messages: { readonly role: string | null; readonly pieces: readonly Piece[] }[];
  readonly outputs: {
    readonly cell: Cell;
    readonly transforms: readonly unknown[];
    readonly sampling: Readonly<Record<string, unknown>>;
  }[];
}

/** Calls that run once for each item, for a choice, or until something holds. */
export interface Block {
  readonly kind: "map" | "reduce" | "choose" | "repeat";
  readonly inside: readonly symbol[];
  /** By field of the API. */
  readonly reads: Readonly<Record<string, Cell>>;
  readonly binds: Readonly<Record<string, Cell>>;
  /** `fields` of a choice's cases; null: the case of all others. */
  readonly bodies: readonly {
    readonly body: symbol;
    readonly fields: object | null;
    readonly result: Cell;
  }[];
  readonly fields: object;
  readonly output: Cell;
}

type Json = Record<string, unknown>;

/** A graph as a body of POST /v1/programs, but for what is awaited. */
export interface Written {
  readonly body: { readonly variables: Json; readonly calls: readonly Json[] };
  /** Every value of it that is not known yet. */
  readonly names: ReadonlyMap<Cell, string>;
}

/** Everything that the values are made of and that is not known yet. */
export function writeGraph(wanted: readonly Cell[]): Written {
  const writer = new Writer();
  for (const cell of wanted) writer.cell(cell);
  return writer.written();
}

/** Everything behind values that is not known yet, themselves included. */
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

/** Why a value will never be there: one that it is made of has failed. Null: none has. */
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

/** Where calls are written: the program, or a block's body, which is for what depends on what it binds, or was made in it. */
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
  /** Innermost last. */
  readonly #scopes: Scope[] = [this.#program];
  readonly #dependents = new Map<Cell, Map<Cell, boolean>>();
  #count = 0;

  written(): Written {
    const names = new Map([...this.#names].filter(([cell]) => cell.settled === null));
    return { body: { variables: this.#variables, calls: this.#program.calls }, names };
  }

  /** The name of a value, written with all that it is made of. */
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

  /** The innermost body that the node was made in, or that binds something which it depends on. */
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
          // What looks like a placeholder and is none goes by a variable.
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

/** A program on its way. */
export interface Running {
  /** Resolves when it is over, however it ended. */
  readonly over: Promise<void>;
}
