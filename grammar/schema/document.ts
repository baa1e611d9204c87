import { ConstraintError } from "../error.ts";

/** Schema as written, with the context of its place in the document. */
export interface RawSchema {
  readonly schema: Readonly<Record<string, unknown>> | boolean;
  /** JSON pointer as a fragment: "#/properties/a". */
  readonly pointer: string;
  /** Base URI of its references. */
  readonly base: string;
  /** True before draft 2019-09, where a `$ref` overrides all keywords beside it. */
  readonly isOldDraft: boolean;
}

/** Maximum nesting depth of objects and arrays; a level of a schema needs one or two. */
const DEPTH_MAX = 64;
const NO_BASE = "schema:";
/** Keywords whose values are data, not schemas. */
const data = new Set(["enum", "const", "default", "examples", "example"]);

/** Document with its schemas, by object and by address. References can only refer to the document itself. */
export class SchemaDocument {
  readonly root: RawSchema;
  readonly #byObject = new Map<object, RawSchema>();
  readonly #byAddress = new Map<string, RawSchema>();

  /** Reads a document; throws ConstraintError if it is not a schema, or too deep. */
  constructor(source: unknown) {
    const depth = depthOf(source);
    if (depth > DEPTH_MAX)
      throw new ConstraintError(`a schema may be nested ${DEPTH_MAX} deep at most, but is ${depth} deep`);
    this.#visit(source, "#", NO_BASE, false, 0);
    this.root = this.at(source, "#", NO_BASE, false);
    this.#byAddress.set(NO_BASE, this.root);
  }

  /** Returns the schema that is a keyword's value. */
  at(value: unknown, pointer: string, base: string, isOldDraft: boolean): RawSchema {
    if (typeof value === "boolean") return { schema: value, pointer, base, isOldDraft };
    if (!isObject(value)) throw new ConstraintError("a schema must be an object or a boolean", pointer);
    const known = this.#byObject.get(value);
    if (known !== undefined) return known;
    const raw = { schema: value, pointer, base, isOldDraft };
    this.#byObject.set(value, raw);
    return raw;
  }

  /** Returns the schema below a keyword, or an entry of it. */
  below(raw: RawSchema, ...path: readonly (string | number)[]): RawSchema {
    let value: unknown = raw.schema;
    let { pointer } = raw;
    for (const step of path) {
      value = (value as Record<string | number, unknown>)[step];
      pointer += `/${escapePointer(String(step))}`;
    }
    return this.at(value, pointer, raw.base, raw.isOldDraft);
  }

  /** Resolves a `$ref`; throws ConstraintError if its target is not in the document. */
  resolve(reference: string, { base, pointer, isOldDraft }: RawSchema): RawSchema {
    const fail = (why: string): never => {
      throw new ConstraintError(`$ref ${JSON.stringify(reference)} ${why}`, `${pointer}/$ref`);
    };
    const address = addressOf(reference, base);
    if (address === null) return fail("is no reference");
    const known = this.#byAddress.get(address);
    if (known !== undefined) return known;
    const [document = "", fragment = ""] = address.split("#");
    let at = this.#byAddress.get(document) ?? (document === base ? this.root : undefined);
    if (at === undefined) return fail("leads out of the schema, and nothing is fetched");
    if (!fragment.startsWith("/")) return fragment === "" ? at : fail("names nothing in the schema");
    let value: unknown = at.schema;
    let path = at.pointer;
    for (const step of fragment.slice(1).split("/")) {
      const name = unescapePointer(step);
      if (typeof value !== "object" || value === null || !Object.hasOwn(value, name)) {
        return fail("names nothing in the schema");
      }
      value = (value as Record<string, unknown>)[name];
      path += `/${step}`;
      if (isObject(value)) at = this.#byObject.get(value) ?? at;
    }
    return this.at(value, path, at.base, isOldDraft);
  }

  #visit(value: unknown, pointer: string, outerBase: string, outerIsOld: boolean, depth: number): void {
    if (Array.isArray(value)) {
      value.forEach((item, index) => {
        this.#visit(item, `${pointer}/${index}`, outerBase, outerIsOld, depth + 1);
      });
      return;
    }
    if (!isObject(value)) return;
    const draft = value.$schema;
    const isOldDraft = typeof draft === "string" ? /draft-0[3-7]/.test(draft) : outerIsOld;
    const id = value.$id ?? (isOldDraft ? value.id : undefined);
    let base = outerBase;
    if (typeof id === "string" && !(isOldDraft && value.$ref !== undefined)) {
      const address = addressOf(id, outerBase);
      if (address !== null && id.startsWith("#")) this.#name(address, value, pointer, base, isOldDraft);
      else if (address !== null) {
        base = address.replace(/#$/, "");
        this.#name(base, value, pointer, base, isOldDraft);
      }
    }
    this.at(value, pointer, base, isOldDraft);
    for (const name of ["$anchor", "$dynamicAnchor"]) {
      const anchor = value[name];
      if (typeof anchor === "string") this.#name(`${base}#${anchor}`, value, pointer, base, isOldDraft);
    }
    for (const [key, child] of Object.entries(value)) {
      if (!data.has(key) || depth % 2 === 1)
        this.#visit(child, `${pointer}/${escapePointer(key)}`, base, isOldDraft, depth + 1);
    }
  }

  #name(address: string, value: object, pointer: string, base: string, isOldDraft: boolean): void {
    if (!this.#byAddress.has(address))
      this.#byAddress.set(address, this.at(value, pointer, base, isOldDraft));
  }
}

/**
 * Returns the nesting depth of objects and arrays. Iterates level by level, since the depth may exceed the
 * call stack.
 */
function depthOf(value: unknown): number {
  const holdersIn = (values: readonly unknown[]): object[] =>
    values.filter((one): one is object => typeof one === "object" && one !== null);
  let depth = 0;
  for (let level = holdersIn([value]); level.length > 0; depth++)
    level = holdersIn(level.flatMap((one) => Object.values(one)));
  return depth;
}

/** Returns the absolute address of a reference; null if it is invalid. */
function addressOf(reference: string, base: string): string | null {
  let decoded: string;
  try {
    decoded = decodeURIComponent(reference);
  } catch {
    decoded = reference;
  }
  if (decoded.startsWith("#")) return decoded === "#" ? base : `${base}${decoded}`;
  if (/^[a-zA-Z][a-zA-Z0-9+.-]*:/.test(decoded)) {
    if (!/^[a-z]+:\/\//.test(decoded)) return decoded;
  }
  try {
    return decodeURIComponent(new URL(decoded, base === NO_BASE ? "schema://document/" : base).href).replace(
      /#$/,
      "",
    );
  } catch {
    return null;
  }
}

/** True for plain objects. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Escapes a step of a JSON pointer (RFC 6901). */
export function escapePointer(step: string): string {
  return step.replaceAll("~", "~0").replaceAll("/", "~1");
}

function unescapePointer(step: string): string {
  return step.replaceAll("~1", "/").replaceAll("~0", "~");
}
