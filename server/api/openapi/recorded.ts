/** Schemas of request bodies, made by running the routes' own readers over examples and recording their reads. */

import { ApiError } from "../../http/errors.ts";
import { type FieldKind, withReadings } from "../fields.ts";
import { nullable, refTo, type Schema } from "./shapes.ts";
import { modelBounds } from "./stand-in.ts";

type Body = Readonly<Record<string, unknown>>;

/** Reader of request bodies, with example bodies that make it read every field that it knows. */
export interface RecordedBody {
  readonly read: (body: Body) => unknown;
  /** Bodies that the reader accepts; the first is shown as the example. */
  readonly examples: readonly [Body, ...Body[]];
}

interface SchemaOptions {
  readonly required?: readonly string[];
  readonly takesNull?: boolean;
}

/** Schemas of values that hold others of their kind, by name. All bodies of a document share them. */
export class Components {
  readonly #places = new Map<string, Place>();

  place(name: string): Place {
    if (!this.#places.has(name)) this.#places.set(name, new Place(this));
    return this.#places.get(name)!;
  }

  /** The schemas of what was recorded until now. */
  schemas(): Readonly<Record<string, Schema>> {
    const entries = Array.from(this.#places, ([name, place]) => [name, place.schema({ takesNull: false })]);
    return Object.fromEntries(entries);
  }
}

/** Path in a body, with the kinds of values that readers accepted there and below. */
class Place {
  readonly #components: Components;
  /** Name of the component that describes the value here; null: this place does. */
  #component: string | null = null;
  readonly #kinds: FieldKind[] = [];
  readonly #fields = new Map<string, Place>();
  /** Items of an array. */
  #items: Place | null = null;
  /** Values of a map. */
  #values: Place | null = null;

  constructor(components: Components) {
    this.#components = components;
  }

  /** Notes what a reader accepts here. */
  accept({ component, ...kind }: FieldKind): void {
    if (component !== undefined) {
      this.#component = component;
      this.#components.place(component).accept(kind);
      return;
    }
    this.#kinds.push(kind);
    if (kind.items !== undefined) this.at("[0]").accept(kind.items);
    if (kind.values === undefined) return;
    this.#values ??= new Place(this.#components);
    this.#values.accept(kind.values);
  }

  field(name: string): Place {
    if (this.#component !== null) return this.#components.place(this.#component).field(name);
    if (!this.#fields.has(name)) this.#fields.set(name, new Place(this.#components));
    return this.#fields.get(name)!;
  }

  at(segment: string): Place {
    if (!segment.startsWith("[")) return this.#values ?? this.field(segment);
    this.#items ??= new Place(this.#components);
    return this.#items;
  }

  /** `required`: fields that must be there. `takesNull`: null is accepted, as a missing value. */
  schema({ required = [], takesNull = true }: SchemaOptions = {}): Schema {
    if (this.#component !== null) {
      const ref = refTo(this.#component);
      return takesNull ? nullable(ref) : ref;
    }
    const kinds = this.#kinds;
    const own = kinds.some((kind) => Object.keys(kind).length === 0) ? {} : schemaOfKinds(kinds, takesNull);
    const properties = [...this.#fields].map(([name, place]) => [
      name,
      place.schema({ takesNull: !required.includes(name) }),
    ]);
    return {
      ...own,
      ...(properties.length === 0 ? {} : { properties: Object.fromEntries(properties) }),
      ...(required.length === 0 ? {} : { required }),
      ...(this.#items === null ? {} : { items: this.#items.schema({ takesNull: false }) }),
      ...(this.#values === null ? {} : { additionalProperties: this.#values.schema({ takesNull: false }) }),
    };
  }
}

/** Schema of a body: the fields that its reader reads, and which of them are required. Adds to `components`. */
export function schemaOfBody({ read, examples }: RecordedBody, components: Components): Schema {
  const root = new Place(components);
  for (const example of examples)
    withReadings(
      (path, name, kind) => {
        const parent = (path.match(/\[\d+\]|[^.[\]]+/g) ?? []).reduce(
          (place, segment) => place.at(segment),
          root,
        );
        parent.field(name).accept(kind);
      },
      () => read(example),
    );
  return { type: "object", ...root.schema({ required: requiredIn(read, examples) }) };
}

/** Required fields: without one of them the reader refuses every example, with an error that names it. */
function requiredIn(read: RecordedBody["read"], examples: readonly Body[]): string[] {
  const isMissed = (body: Body, name: string): boolean => {
    const { [name]: _, ...others } = body;
    try {
      read(others);
      return false;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      return error.detail.param === name;
    }
  };
  return Object.keys(examples[0]!).filter((name) => examples.every((body) => isMissed(body, name)));
}

/** Schema of every value that one of the kinds accepts. */
function schemaOfKinds(kinds: readonly FieldKind[], takesNull: boolean): Schema {
  if (kinds.length === 0) return {};
  const none = takesNull ? [null] : [];
  const values = unique(kinds.flatMap((kind) => kind.enum ?? []));
  const typed = kinds.filter(({ type }) => type !== undefined);
  if (typed.length === 0) return { enum: unique([...values, ...none]) };
  const types = new Set([...typed.flatMap(({ type }) => type!), ...[...values, ...none].map(typeOf)]);
  if (types.has("number")) types.delete("integer");
  const numbers = values.filter((value) => typeof value === "number");
  return {
    type: [...types],
    ...bound("minimum", Math.min(...known(typed, "minimum"), ...numbers)),
    ...bound("maximum", Math.max(...known(typed, "maximum"), ...numbers)),
    ...bound("maxItems", Math.max(...known(typed, "maxItems"))),
    ...bound("maxProperties", Math.max(...known(typed, "maxProperties"))),
  };
}

function known(
  kinds: readonly FieldKind[],
  key: "minimum" | "maximum" | "maxItems" | "maxProperties",
): number[] {
  const numeric = key === "minimum" || key === "maximum";
  const open = numeric && kinds.some((kind) => isNumeric(kind) && kind[key] === undefined);
  if (open) return [key === "minimum" ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY];
  return kinds.flatMap((kind) => kind[key] ?? []);
}

function isNumeric({ type }: FieldKind): boolean {
  return [type].flat().some((one) => one === "integer" || one === "number");
}

/** Leaves out bounds that do not limit anything, and those that come from the stand-in model. */
function bound(key: string, value: number): Schema {
  const isReal = Math.abs(value) < Number.MAX_SAFE_INTEGER && !modelBounds.includes(value);
  return isReal ? { [key]: value } : {};
}

function typeOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  return Number.isInteger(value) ? "integer" : typeof value;
}

function unique(values: readonly unknown[]): unknown[] {
  return [...new Map(values.map((value) => [JSON.stringify(value), value])).values()];
}
