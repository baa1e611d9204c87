/** The syntax tree of a template. */
import type { Value } from "./values.ts";

export type BinaryOperator = "+" | "-" | "*" | "/" | "//" | "%" | "**";
export type CompareOperator = "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not in";

/** Arguments of a call: `f(a, *b, c=d, **e)`. */
export interface CallSyntax {
  readonly positional: readonly Expression[];
  readonly named: readonly (readonly [name: string, value: Expression])[];
  readonly restPositional: Expression | null;
  readonly restNamed: Expression | null;
}

export type Expression =
  | { readonly kind: "constant"; readonly value: Value }
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "list" | "tuple"; readonly items: readonly Expression[] }
  | { readonly kind: "dict"; readonly pairs: readonly (readonly [key: Expression, value: Expression])[] }
  | { readonly kind: "and" | "or"; readonly left: Expression; readonly right: Expression }
  | { readonly kind: "not"; readonly operand: Expression }
  | { readonly kind: "sign"; readonly sign: "+" | "-"; readonly operand: Expression }
  | {
      readonly kind: "binary";
      readonly operator: BinaryOperator;
      readonly left: Expression;
      readonly right: Expression;
    }
  | { readonly kind: "concat"; readonly parts: readonly Expression[] }
  | {
      readonly kind: "compare";
      readonly first: Expression;
      readonly rest: readonly (readonly [operator: CompareOperator, operand: Expression])[];
    }
  | {
      readonly kind: "conditional";
      readonly test: Expression;
      readonly yes: Expression;
      readonly otherwise: Expression | null;
    }
  | { readonly kind: "attribute"; readonly object: Expression; readonly name: string }
  | { readonly kind: "item"; readonly object: Expression; readonly key: Expression }
  | { readonly kind: "slice"; readonly object: Expression; readonly bounds: SliceBounds }
  | { readonly kind: "call"; readonly callee: Expression; readonly args: CallSyntax }
  /** `input` is null at the start of a filter block: the block's text. */
  | {
      readonly kind: "filter";
      readonly name: string;
      readonly input: Expression | null;
      readonly args: CallSyntax;
    }
  | { readonly kind: "test"; readonly name: string; readonly input: Expression; readonly args: CallSyntax };

export type SliceBounds = readonly [
  start: Expression | null,
  stop: Expression | null,
  step: Expression | null,
];

export type CallExpression = Extract<Expression, { kind: "call" }>;

/** Target of an assignment. */
export type Target =
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "tuple"; readonly items: readonly Target[] }
  | { readonly kind: "namespace"; readonly name: string; readonly attribute: string };

export interface Parameter {
  readonly name: string;
  readonly fallback: Expression | null;
}

export type Body = readonly Statement[];

export type Statement =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "print"; readonly value: Expression }
  | { readonly kind: "set"; readonly target: Target; readonly value: Expression }
  | {
      readonly kind: "set block";
      readonly target: Target;
      readonly filter: Expression | null;
      readonly body: Body;
    }
  | {
      readonly kind: "for";
      readonly target: Target;
      readonly iterable: Expression;
      readonly test: Expression | null;
      readonly isRecursive: boolean;
      readonly body: Body;
      readonly otherwise: Body;
    }
  | {
      readonly kind: "if";
      readonly branches: readonly { readonly test: Expression; readonly body: Body }[];
      readonly otherwise: Body;
    }
  | { readonly kind: "macro"; readonly macro: MacroSyntax }
  /** `caller` is the block's body as a macro. */
  | { readonly kind: "call block"; readonly call: CallExpression; readonly caller: MacroSyntax }
  | { readonly kind: "filter block"; readonly filter: Expression; readonly body: Body }
  | {
      readonly kind: "with";
      readonly bindings: readonly (readonly [target: Target, value: Expression])[];
      readonly body: Body;
    }
  /** A body in a scope of its own: `block` and `generation`. */
  | { readonly kind: "scope"; readonly body: Body }
  | { readonly kind: "break" | "continue" }
  /** Tag that loads another template, such as `include`. It fails, because there is no other template. */
  | { readonly kind: "load"; readonly tag: string };

export interface MacroSyntax {
  readonly name: string;
  readonly parameters: readonly Parameter[];
  readonly body: Body;
  /** Names among `caller`, `varargs` and `kwargs` that the body reads and that are no parameters. */
  readonly reads: ReadonlySet<string>;
}
