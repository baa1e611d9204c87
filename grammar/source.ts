import type { GrammarSymbol } from "./grammar.ts";
import type { JsonLayout } from "./schema/compile-schema.ts";
import type { CallForm } from "./tools/call-form.ts";

/** Constraint on an answer's text, as a client specifies it. Plain data. */
export type ConstraintSource =
  /** JSON value that the schema allows. */
  | { readonly kind: "schema"; readonly schema: unknown; readonly layout: JsonLayout }
  /** Text that matches the regular expression completely (ECMA 262, regular features only). */
  | { readonly kind: "regex"; readonly pattern: string }
  /** Grammar in llama.cpp's notation (with `::=`), or in Lark's. */
  | { readonly kind: "grammar"; readonly text: string }
  /** Choice of texts. */
  | { readonly kind: "choice"; readonly texts: readonly string[] }
  /** Text in which marks begin parts of other forms (structural tags). */
  | { readonly kind: "tags"; readonly format: TagFormat }
  | CallsSource
  | ThinkingSource;

/** Marks that begin and may end an answer's text; "": none. */
export interface TextMarks {
  readonly before: string;
  readonly after: string;
  /** True for tags: both may be missing, and line breaks may stand inside them. */
  readonly areTags: boolean;
}

export const noMarks: TextMarks = { before: "", after: "", areTags: false };

/** Thoughts between marks, followed by the constrained answer. */
export interface ThinkingSource {
  readonly kind: "thinking";
  readonly opening: string;
  readonly closing: string;
  /** True if the prompt has opened the thoughts; else they are optional. */
  readonly isOpen: boolean;
  /** Marks that are tokens of their own. */
  readonly controlTexts: readonly string[];
  /** Constraint on the answer; null: any text. */
  readonly answer: ConstraintSource | null;
  readonly marks: TextMarks;
}

/** Tool calls in the model's own form. */
export interface CallsSource {
  readonly kind: "calls";
  readonly form: CallForm;
  /** Control texts of the form that are tokens of their own. */
  readonly controlTexts: readonly string[];
  readonly functions: readonly CallableFunction[];
  /** Calls at most; null: any number. */
  readonly callsMax: number | null;
  /** True if text is allowed instead, or around calls where the form permits it. */
  readonly mayTalk: boolean;
  /** Constraint on the text if there are no calls; null: any. */
  readonly otherwise: ConstraintSource | null;
  /** Marks of text that is not a call. */
  readonly marks: TextMarks;
}

/** Callable function with the schema of its arguments object; null: anything. */
export interface CallableFunction {
  readonly name: string;
  readonly parameters: unknown;
  /** True if unsupported parameters are refused; else they allow any object. */
  readonly isStrict: boolean;
}

/** Compiled part of a constraint, with the names of ignored keywords. */
export interface CompiledPart {
  readonly symbol: GrammarSymbol;
  readonly ignored: readonly string[];
}

/** Text with parts of other forms in it: the structural tags of xgrammar and vLLM. */
export type TagFormat =
  | { readonly kind: "text" }
  /** Part with a constraint of its own. */
  | { readonly kind: "held"; readonly to: ConstraintSource }
  | { readonly kind: "sequence" | "or"; readonly elements: readonly TagFormat[] }
  | Tag
  | TriggeredTags
  /** Tags with a separator between each two. */
  | (TagCount & { readonly kind: "separated"; readonly tags: readonly Tag[]; readonly separator: string });

/** Part between two marks; there may be several alternative end marks. */
export interface Tag {
  readonly kind: "tag";
  readonly begin: string;
  readonly content: TagFormat;
  readonly ends: readonly string[];
}

/** Free text in which a trigger begins one of the tags that start with it. */
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
