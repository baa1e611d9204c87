import { ConstraintError } from "../error.ts";
import type { GrammarBuilder, GrammarSymbol } from "../grammar.ts";
import type { CompiledPart, ConstraintSource, Tag, TagFormat, TriggeredTags } from "../source.ts";
import { MarkedTexts } from "./marked-texts.ts";

/** Compiles structural tags; `compile` compiles a part. Throws ConstraintError for unsupported formats. */
export function compileTags(
  format: TagFormat,
  compile: (source: ConstraintSource) => CompiledPart,
  builder: GrammarBuilder,
): CompiledPart {
  const compiler = new TagCompiler(compile, builder);
  return { symbol: compiler.symbolOf(format, []), ignored: compiler.ignored };
}

class TagCompiler {
  readonly ignored: string[] = [];
  readonly #compile: (source: ConstraintSource) => CompiledPart;
  readonly #builder: GrammarBuilder;
  readonly #texts: MarkedTexts;

  constructor(compile: (source: ConstraintSource) => CompiledPart, builder: GrammarBuilder) {
    this.#compile = compile;
    this.#builder = builder;
    this.#texts = new MarkedTexts(builder.regexes, []);
  }

  /** `ends`: marks that end it, so that its free text contains none of them. */
  symbolOf(format: TagFormat, ends: readonly string[]): GrammarSymbol {
    const builder = this.#builder;
    switch (format.kind) {
      case "text":
        return this.#talk(ends);
      case "held": {
        const { symbol, ignored } = this.#compile(format.to);
        this.ignored.push(...ignored);
        return symbol;
      }
      case "sequence":
        return builder.sequence(...format.elements.map((element) => this.symbolOf(element, ends)));
      case "or":
        return builder.choice(format.elements.map((element) => this.symbolOf(element, ends)));
      case "tag":
        return this.#tag(format);
      case "triggered":
        return this.#triggered(format, ends);
      case "separated": {
        const tag = builder.choice(format.tags.map((one) => this.#tag(one)));
        const next = builder.sequence(this.#mark(format.separator), tag);
        const more = format.stopsAfterFirst ? 0 : Number.POSITIVE_INFINITY;
        const some = builder.sequence(tag, builder.repeat(next, 0, more));
        return builder.repeat(some, format.atLeastOne ? 1 : 0, 1);
      }
    }
  }

  #tag({ begin, content, ends }: Tag): GrammarSymbol {
    const end = this.#builder.choice(ends.map((one) => this.#mark(one)));
    return this.#builder.sequence(this.#mark(begin), this.symbolOf(content, ends), end);
  }

  #triggered(format: TriggeredTags, ends: readonly string[]): GrammarSymbol {
    const { triggers, tags, atLeastOne, stopsAfterFirst } = format;
    for (const { begin } of tags) {
      if (triggers.some((trigger) => begin.startsWith(trigger))) continue;
      throw new ConstraintError(
        `the tag that begins ${JSON.stringify(begin)} begins with none of the triggers`,
      );
    }
    const builder = this.#builder;
    const tag = builder.choice(tags.map((one) => this.#tag(one)));
    const talk = this.#talk([...triggers, ...ends]);
    const least = atLeastOne ? 1 : 0;
    if (stopsAfterFirst) return builder.sequence(talk, builder.repeat(tag, least, 1));
    const more = builder.repeat(builder.sequence(tag, talk), least, Number.POSITIVE_INFINITY);
    return builder.sequence(talk, more);
  }

  #talk(marks: readonly string[]): GrammarSymbol {
    const isFree = marks.every((mark) => mark === "");
    return this.#builder.terminal(isFree ? this.#texts.anyText : this.#texts.without(marks));
  }

  #mark(text: string): GrammarSymbol {
    return this.#builder.terminal(this.#texts.literal(text));
  }
}
