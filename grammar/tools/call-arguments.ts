import { type Budget, ConstraintError } from "../error.ts";
import type { GrammarBuilder, GrammarSymbol } from "../grammar.ts";
import { compileSchema } from "../schema/compile-schema.ts";
import type { CompiledPart } from "../source.ts";
import { BareArguments } from "./bare-arguments.ts";
import type { ArgumentsForm } from "./call-form.ts";
import type { MarkedTexts } from "./marked-texts.ts";
import { anyName, isObject, objectOf, plainText, type Schema } from "./plain-arguments.ts";

/** Compiles a call's arguments that `schema` allows, in one of the forms in which models write them. */
export function compileArguments(
  form: ArgumentsForm,
  schema: unknown,
  texts: MarkedTexts,
  builder: GrammarBuilder,
  budget: Budget,
): CompiledPart {
  if (form.kind === "json") return compileSchema(schema, builder, "compact", budget, "object");
  if (form.kind === "bare") return new BareArguments(form.quote, texts, builder, budget).compile(schema);
  return new ArgumentList(form, texts, builder, budget).compile(schema);
}

/** True if an argument is written as plain text, false if as JSON. The parser of calls uses the same test. */
export function isTextArgument(parameters: unknown, name: string): boolean {
  const properties = isObject(parameters) && isObject(parameters.properties) ? parameters.properties : {};
  const schema = Object.hasOwn(properties, name) ? properties[name] : undefined;
  return (
    isObject(schema) && schema.type === "string" && !conditions.some((word) => Object.hasOwn(schema, word))
  );
}

/** Keywords that make a string argument JSON. */
const conditions = ["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if"];

/** Keywords without effect. */
const notes = ["title", "description", "default", "examples"];

/** Arguments by name, in the order of the schema's properties. */
class ArgumentList {
  readonly #form: Exclude<ArgumentsForm, { kind: "json" | "bare" }>;
  readonly #texts: MarkedTexts;
  readonly #builder: GrammarBuilder;
  readonly #budget: Budget;
  readonly #ignored: string[] = [];

  constructor(
    form: Exclude<ArgumentsForm, { kind: "json" | "bare" }>,
    texts: MarkedTexts,
    builder: GrammarBuilder,
    budget: Budget,
  ) {
    this.#form = form;
    this.#texts = texts;
    this.#builder = builder;
    this.#budget = budget;
  }

  compile(schema: unknown): CompiledPart {
    const { names, required, isClosed } = objectOf(schema, this.#ignored);
    const isFree = names.length === 0 && !isClosed;
    const symbol = isFree ? this.#anyArguments() : this.#listOf(schema as Schema, names, required);
    return { symbol, ignored: this.#ignored };
  }

  /** Returns lists of all required arguments and any of the others, each once. */
  #listOf(schema: Schema, names: readonly string[], required: readonly unknown[]): GrammarSymbol {
    const builder = this.#builder;
    const argumentOf = new Map(names.map((name) => [name, this.#argument(schema, name)]));
    /** Arguments from the last to the first; the second variable is for the case that none came before. */
    let after = builder.nothing;
    let first = builder.nothing;
    for (const name of names.toReversed()) {
      const argument = argumentOf.get(name)!;
      const next = builder.sequence(...this.#mark(this.#separator), argument, after);
      const begun = builder.sequence(argument, after);
      const isRequired = required.includes(name);
      first = isRequired ? begun : builder.choice([begun, first]);
      after = isRequired ? next : builder.choice([next, after]);
    }
    return first;
  }

  #anyArguments(): GrammarSymbol {
    const builder = this.#builder;
    const name = anyName(builder.regexes);
    const argument = builder.sequence(
      ...this.#mark(this.#beforeName),
      builder.terminal(name),
      ...this.#mark(this.#afterName),
      this.#form.kind === "python" ? this.#python({}, false, this.#json({})) : this.#json({}),
      ...this.#mark(this.#afterValue),
    );
    const next = builder.sequence(...this.#mark(this.#separator), argument);
    return builder.choice([
      builder.nothing,
      builder.sequence(argument, builder.repeat(next, 0, Number.POSITIVE_INFINITY)),
    ]);
  }

  #argument(schema: Schema, name: string): GrammarSymbol {
    if (this.#form.kind === "python" && !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
      throw new ConstraintError(
        `${JSON.stringify(name)} is no name of an argument in Python`,
        "#/properties",
      );
    }
    const form = this.#form;
    const isText = form.kind === "tagged" && isTextArgument(schema, name);
    const afterName = isText ? (form.afterTextName ?? form.afterName) : this.#afterName;
    return this.#builder.sequence(
      ...this.#mark(this.#beforeName + name + afterName),
      this.#value(schema, name),
      ...this.#mark(this.#afterValue),
    );
  }

  #value(schema: Schema, name: string): GrammarSymbol {
    const property = (schema.properties as Schema)[name];
    const pointer = `#/properties/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
    try {
      if (this.#form.kind === "tagged" && isTextArgument(schema, name))
        return this.#builder.terminal(
          plainText(property as Schema, this.#form.closing, this.#texts, this.#builder, this.#ignored),
        );
      // Definitions for its references stand beside it.
      const { $defs, definitions } = schema;
      const shared = {
        ...($defs === undefined ? {} : { $defs }),
        ...(definitions === undefined ? {} : { definitions }),
      };
      const json = this.#json(isObject(property) ? { ...shared, ...property } : property);
      if (this.#form.kind !== "python") return json;
      return this.#python(property, isTextArgument(schema, name), json);
    } catch (error) {
      if (!(error instanceof ConstraintError)) throw error;
      throw new ConstraintError(error.message, pointer + error.pointer.replace(/^#/, ""));
    }
  }

  /** Value in Python, which JSON is nearly. Python's words are for values without further conditions. */
  #python(property: unknown, isText: boolean, json: GrammarSymbol): GrammarSymbol {
    if (isText) return this.#builder.choice([json, this.#quoted(property as Schema)]);
    if (this.#form.kind !== "python" || this.#form.words === "json") return json;
    const words = (all: readonly string[]) => all.flatMap((word) => this.#mark(word));
    const keywords = isObject(property) ? Object.keys(property).filter((word) => !notes.includes(word)) : [];
    if (keywords.length === 0) return this.#builder.choice([json, ...words(["True", "False", "None"])]);
    const isBoolean = keywords.length === 1 && (property as Schema).type === "boolean";
    return isBoolean ? this.#builder.choice(words(["True", "False"])) : json;
  }

  /** Text between single quotes, without escapes. */
  #quoted(property: Schema): GrammarSymbol {
    const builder = this.#builder;
    const text = builder.regexes.and([
      plainText(property, "'", this.#texts, builder, this.#ignored),
      this.#texts.without(["\\"]),
    ]);
    return builder.sequence(...this.#mark("'"), builder.terminal(text), ...this.#mark("'"));
  }

  #json(schema: unknown): GrammarSymbol {
    const { symbol, ignored } = compileSchema(schema, this.#builder, "compact", this.#budget);
    this.#ignored.push(...ignored);
    return symbol;
  }

  #mark(text: string): GrammarSymbol[] {
    return text === "" ? [] : [this.#builder.terminal(this.#texts.literal(text))];
  }

  get #beforeName(): string {
    return this.#form.kind === "tagged" ? this.#form.beforeName : "";
  }

  get #afterName(): string {
    return this.#form.kind === "tagged" ? this.#form.afterName : "=";
  }

  get #afterValue(): string {
    return this.#form.kind === "tagged" ? this.#form.afterValue : "";
  }

  get #separator(): string {
    return this.#form.kind === "tagged" ? "" : ", ";
  }
}
