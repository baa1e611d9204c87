import type { GrammarSymbol } from "./grammar.ts";
import type { JsonLayout } from "./schema/compile-schema.ts";
import type { CallForm } from "./tools/call-form.ts";

/** What an answer's text must be, as a client says it. Plain data. */
export type ConstraintSource =
  /** A JSON value that the schema allows. */
  | { readonly kind: "schema"; readonly schema: unknown; readonly layout: JsonLayout }
  /** All of the text matches the regular expression (ECMA 262, without what is not regular). */
  | { readonly kind: "regex"; readonly pattern: string }
  /** A grammar as llama.cpp writes it (with `::=`), or as Lark does. */
  | { readonly kind: "grammar"; readonly text: string }
  /** One of the texts. */
  | { readonly kind: "choice"; readonly texts: readonly string[] }
  /** Text in which marks begin parts of other forms. */
  | { readonly kind: "tags"; readonly format: TagFormat }
  | CallsSource
  | ThinkingSource;

/** Thoughts between marks, and then what the answer must be. */
export interface ThinkingSource {
  readonly kind: "thinking";
  readonly opening: string;
  readonly closing: string;
  /** The prompt has begun them; else they may come or not. */
  readonly isOpen: boolean;
  /** Of the marks those that are tokens of their own. */
  readonly controlTexts: readonly string[];
  /** Null: any text. */
  readonly answer: ConstraintSource | null;
  /** What the answer begins with, and what may end it; "": nothing. */
  readonly beforeText: string;
  readonly afterText: string;
}

/** Calls of functions, as the model writes them. */
export interface CallsSource {
  readonly kind: "calls";
  readonly form: CallForm;
  /** Those that are tokens of their own, of the control texts that are in the form's. */
  readonly controlTexts: readonly string[];
  readonly functions: readonly CallableFunction[];
  /** Calls at most; null: any number. */
  readonly callsMax: number | null;
  /** Or text, with calls where the form has them, or none. */
  readonly mayTalk: boolean;
  /** What the text must be where there are no calls; null: any. */
  readonly otherwise: ConstraintSource | null;
  /** What text begins with that is no call, and what may end it; "": nothing. */
  readonly beforeText: string;
  readonly afterText: string;
}

/** A function that may be called, and what its arguments, an object, have to obey; null: anything. */
export interface CallableFunction {
  readonly name: string;
  readonly parameters: unknown;
  /** Parameters that cannot be held to are refused; else they allow any object. */
  readonly isStrict: boolean;
}

/** What a part of a constraint may be, and the names of what in it demands nothing that is known. */
export interface CompiledPart {
  readonly symbol: GrammarSymbol;
  readonly ignored: readonly string[];
}

/** Text with parts of other forms in it: the structural tags of xgrammar and vLLM. */
export type TagFormat =
  | { readonly kind: "text" }
  /** What a constraint by itself would be. */
  | { readonly kind: "held"; readonly to: ConstraintSource }
  | { readonly kind: "sequence" | "or"; readonly elements: readonly TagFormat[] }
  | Tag
  | TriggeredTags
  /** Tags with a text between each two. */
  | (TagCount & { readonly kind: "separated"; readonly tags: readonly Tag[]; readonly separator: string });

/** A part between two marks, the second of which may be one of several. */
export interface Tag {
  readonly kind: "tag";
  readonly begin: string;
  readonly content: TagFormat;
  readonly ends: readonly string[];
}

/** Free text, in which a trigger begins one of the tags that begin with it. */
export interface TriggeredTags extends TagCount {
  readonly kind: "triggered";
  readonly triggers: readonly string[];
  readonly tags: readonly Tag[];
}

/** Bounds on the number of tags. */
export interface TagCount {
  readonly atLeastOne: boolean;
  readonly stopsAfterFirst: boolean;
}
