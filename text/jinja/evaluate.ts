/** Evaluation of expressions. */
import { attribute, item, slice } from "./attributes.ts";
import { applyFilter, applyTest } from "./by-name.ts";
import { fail } from "./errors.ts";
import { binary, compare, join2, signed } from "./operators.ts";
import { str } from "./print.ts";
import type { Runtime } from "./runtime.ts";
import type { CallSyntax, Expression } from "./syntax.ts";
import {
  type Arguments,
  Callable,
  Dict,
  isTrue,
  iterate,
  or,
  type Scope,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** Expressions that need an operation to evaluate. */
type Operation = Exclude<Expression, { kind: "constant" | "name" }>;

/** Evaluates an expression. `input`: value for a filter without one, namely the text of its filter block. */
export function evaluate(rt: Runtime, node: Expression, scope: Scope, input: Value = null): Value {
  rt.budget.spend(1);
  if (node.kind === "constant") return node.value;
  if (node.kind === "name")
    return or(scope.get(node.name), () => new Undefined(`'${node.name}' is undefined`));
  rt.budget.enter();
  const value = evaluateNode(rt, node, scope, input);
  rt.budget.leave(); // an error ends the whole rendering, so the depth no longer matters
  return value;
}

function evaluateNode(rt: Runtime, node: Operation, scope: Scope, input: Value): Value {
  const of = (inner: Expression): Value => evaluate(rt, inner, scope, input);
  switch (node.kind) {
    case "attribute":
      return attribute(rt, of(node.object), node.name);
    case "item":
      return item(rt, of(node.object), of(node.key));
    case "slice":
      return slice(
        rt,
        of(node.object),
        node.bounds.map((bound) => (bound === null ? null : of(bound))),
      );
    case "and": {
      const left = of(node.left);
      return isTrue(left) ? of(node.right) : left;
    }
    case "or": {
      const left = of(node.left);
      return isTrue(left) ? left : of(node.right);
    }
    case "not":
      return !isTrue(of(node.operand));
    case "compare":
      return comparison(rt, node, of);
    case "binary":
      return binary(rt, node.operator, of(node.left), of(node.right));
    case "concat":
      return node.parts.map(of).reduce<string>((text, part) => join2(rt, text, str(rt, part)), "");
    case "sign":
      return signed(node.sign, of(node.operand));
    case "conditional":
      if (isTrue(of(node.test))) return of(node.yes);
      if (node.otherwise !== null) return of(node.otherwise);
      return new Undefined("the inline if-expression evaluated to false and no else section was defined.");
    case "filter": {
      const given = node.input === null ? input : of(node.input);
      return applyFilter(rt, node.name, given, argumentsOf(node.args, of));
    }
    case "test":
      return applyTest(rt, node.name, of(node.input), argumentsOf(node.args, of));
    case "call":
      return call(rt, of(node.callee), argumentsOf(node.args, of));
    case "list":
      return node.items.map(of);
    case "tuple":
      return new Tuple(node.items.map(of));
    case "dict": {
      const dict = new Dict();
      for (const [key, value] of node.pairs) dict.set(of(key), of(value));
      return dict;
    }
  }
}

/** Chained comparison: `a < b < c` is both, with b evaluated once. */
function comparison(
  rt: Runtime,
  { first, rest }: Extract<Expression, { kind: "compare" }>,
  of: (inner: Expression) => Value,
): boolean {
  let left = of(first);
  for (const [operator, operand] of rest) {
    const right = of(operand);
    if (!compare(rt, operator, left, right)) return false;
    left = right;
  }
  return true;
}

export function call(rt: Runtime, callee: Value, args: Arguments): Value {
  if (callee instanceof Callable) return callee.call(rt, args);
  if (callee instanceof Undefined) return callee.raise();
  return fail("TypeError", `'${typeName(callee)}' object is not callable`);
}

const noArguments: Arguments = { positional: [], named: new Map() };

export function argumentsOf(syntax: CallSyntax, of: (node: Expression) => Value): Arguments {
  const isEmpty = syntax.positional.length + syntax.named.length === 0;
  if (isEmpty && syntax.restPositional === null && syntax.restNamed === null) return noArguments;
  const positional = syntax.positional.map(of);
  const named = new Map<string, Value>();
  for (const [name, value] of syntax.named) named.set(name, of(value));
  if (syntax.restPositional !== null) positional.push(...iterate(of(syntax.restPositional)));
  if (syntax.restNamed !== null) {
    const rest = of(syntax.restNamed);
    if (!(rest instanceof Dict))
      fail("TypeError", `argument after ** must be a mapping, not ${typeName(rest)}`);
    for (const [key, value] of (rest as Dict).entries()) {
      if (typeof key !== "string") return fail("TypeError", "keywords must be strings");
      if (named.has(key)) fail("TypeError", `got multiple values for keyword argument '${key}'`);
      named.set(key, value);
    }
  }
  return { positional, named };
}
