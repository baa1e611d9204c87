import { type Budget, ConstraintError } from "../error.ts";
import type { GrammarBuilder, GrammarSymbol } from "../grammar.ts";
import { compileSchema } from "../schema/compile-schema.ts";
import type { CompiledPart } from "../source.ts";
import type { MarkedTexts } from "./marked-texts.ts";
import { anyName, isObject, objectOf, plainText, type Schema } from "./plain-arguments.ts";

const SCALARS: readonly unknown[] = ["integer", "number", "boolean", "null"];
const DEPTH_MAX = 32;
/** Supported keywords of arrays, and keywords of any value without effect. */
const arrayWords = ["type", "items", "minItems", "maxItems"];
const plainWords = ["title", "description", "default", "examples"];

/** Writes arguments as `name:value,name:value`, sorted by name like in templates. */
export class BareArguments {
  readonly #quote: string;
  readonly #texts: MarkedTexts;
  readonly #builder: GrammarBuilder;
  readonly #budget: Budget;
  readonly #ignored: string[] = [];
  #anything: GrammarSymbol | null = null;

  constructor(quote: string, texts: MarkedTexts, builder: GrammarBuilder, budget: Budget) {
    this.#quote = quote;
    this.#texts = texts;
    this.#builder = builder;
    this.#budget = budget;
  }

  compile(schema: unknown): CompiledPart {
    return { symbol: this.#membersOf(schema, 0), ignored: this.#ignored };
  }

  /** Returns the members between the brackets of an object. */
  #membersOf(schema: unknown, depth: number): GrammarSymbol {
    const { names, required, isClosed } = objectOf(schema, this.#ignored);
    const builder = this.#builder;
    if (names.length === 0) return isClosed ? builder.nothing : this.#anyMembers();
    const properties = (schema as { readonly properties: Schema }).properties;
    /** Members from the last to the first; the second variable is for the case that none came before. */
    let after = builder.nothing;
    let first = builder.nothing;
    for (const name of sorted(names).reverse()) {
      const value = this.#at(`/properties/${pointerPart(name)}`, () =>
        this.#valueOf(properties[name], depth + 1),
      );
      const member = builder.sequence(this.#mark(`${name}:`), value);
      const next = builder.sequence(this.#mark(","), member, after);
      const begun = builder.sequence(member, after);
      const isRequired = required.includes(name);
      first = isRequired ? begun : builder.choice([begun, first]);
      after = isRequired ? next : builder.choice([next, after]);
    }
    return first;
  }

  #valueOf(schema: unknown, depth: number): GrammarSymbol {
    if (depth > DEPTH_MAX) throw new ConstraintError(`it is nested more than ${DEPTH_MAX} deep`);
    if (schema === true || schema === undefined) return this.#anyValue;
    if (!isObject(schema)) throw new ConstraintError("it must be an object");
    const words = Object.keys(schema).filter((word) => !plainWords.includes(word));
    if (words.length === 0) return this.#anyValue;
    const { type } = schema;
    if (type === "object") return this.#between("{", this.#membersOf(schema, depth), "}");
    if (type === "array") return this.#arrayOf(schema, words, depth);
    if (Array.isArray(type) && type.length > 0)
      return this.#builder.choice(type.map((one) => this.#valueOf({ ...schema, type: one }, depth + 1)));
    if (SCALARS.includes(type)) return this.#scalar(schema);
    const isText = type === "string" && !words.some((word) => /^(\$|all|any|one|not$|if$)/.test(word));
    if (!isText)
      throw new ConstraintError(
        "only known types can be kept to in the form in which this model writes arguments",
      );
    const text = plainText(schema, this.#quote, this.#texts, this.#builder, this.#ignored);
    return this.#between(this.#quote, this.#builder.terminal(text), this.#quote);
  }

  #arrayOf(schema: Schema, words: readonly string[], depth: number): GrammarSymbol {
    const unknown = words.find((word) => !arrayWords.includes(word));
    if (unknown !== undefined) {
      throw new ConstraintError(
        `${unknown} cannot be enforced in the form in which this model writes arguments`,
        `#/${unknown}`,
      );
    }
    const builder = this.#builder;
    const min = Number(schema.minItems ?? 0);
    const max = Number(schema.maxItems ?? Number.POSITIVE_INFINITY);
    if (min > max) return builder.never;
    const item = this.#at("/items", () => this.#valueOf(schema.items, depth + 1));
    const more = builder.repeat(builder.sequence(this.#mark(","), item), Math.max(min - 1, 0), max - 1);
    const items = max === 0 ? builder.nothing : builder.sequence(item, more);
    return this.#between("[", min > 0 || max === 0 ? items : builder.choice([builder.nothing, items]), "]");
  }

  #scalar(schema: unknown): GrammarSymbol {
    const { symbol, ignored } = compileSchema(schema, this.#builder, "tight", this.#budget);
    this.#ignored.push(...ignored);
    return symbol;
  }

  /** Symbol of a value without a schema. */
  get #anyValue(): GrammarSymbol {
    if (this.#anything === null) {
      const builder = this.#builder;
      const value = builder.declare();
      this.#anything = value;
      const text = plainText({}, this.#quote, this.#texts, builder, this.#ignored);
      const items = builder.repeat(builder.sequence(this.#mark(","), value), 0, Number.POSITIVE_INFINITY);
      const forms = [
        this.#between(this.#quote, builder.terminal(text), this.#quote),
        this.#scalar({ type: SCALARS }),
        this.#between("[", builder.choice([builder.nothing, builder.sequence(value, items)]), "]"),
        this.#between("{", this.#anyMembers(), "}"),
      ];
      builder.define(
        value,
        forms.map((symbol) => ({ kind: "sequence", symbols: [symbol] })),
      );
    }
    return this.#anything;
  }

  #anyMembers(): GrammarSymbol {
    const builder = this.#builder;
    const name = builder.terminal(anyName(builder.regexes));
    const member = builder.sequence(name, this.#mark(":"), this.#anyValue);
    const more = builder.repeat(builder.sequence(this.#mark(","), member), 0, Number.POSITIVE_INFINITY);
    return builder.choice([builder.nothing, builder.sequence(member, more)]);
  }

  #between(open: string, inside: GrammarSymbol, close: string): GrammarSymbol {
    return this.#builder.sequence(this.#mark(open), inside, this.#mark(close));
  }

  #mark(text: string): GrammarSymbol {
    return this.#builder.terminal(this.#texts.literal(text));
  }

  /** Adds the pointer to errors of `make`. */
  #at(pointer: string, make: () => GrammarSymbol): GrammarSymbol {
    try {
      return make();
    } catch (error) {
      if (!(error instanceof ConstraintError)) throw error;
      throw new ConstraintError(error.message, `#${pointer}${error.pointer.replace(/^#/, "")}`);
    }
  }
}

function pointerPart(name: string): string {
  return name.replaceAll("~", "~0").replaceAll("/", "~1");
}

/** Sorts names like templates: case-insensitively. */
function sorted(names: readonly string[]): string[] {
  const keys = names.map((name) => ({ name, key: name.toLowerCase() }));
  return keys.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0)).map(({ name }) => name);
}
