/** Parser of expressions, with a method per precedence level, loosest first. */
import type {
  BinaryOperator,
  CallExpression,
  CallSyntax,
  CompareOperator,
  Expression,
  SliceBounds,
} from "./syntax.ts";
import { describe, type TokenStream } from "./tokens.ts";

const noArguments: CallSyntax = { positional: [], named: [], restPositional: null, restNamed: null };
const compareOperators = ["==", "!=", "<", "<=", ">", ">="];
const additive = ["+", "-"];
const multiplicative = ["*", "/", "//", "%"];
const depthMax = 100;

export class ExpressionParser {
  readonly #tokens: TokenStream;
  #depth = 0;

  constructor(tokens: TokenStream) {
    this.#tokens = tokens;
  }

  /**
   * Comma-separated expressions as a tuple; a single one as itself. `endsAt`: a name that also ends it, such
   * as `in`.
   */
  tuple(parse: () => Expression = () => this.expression(), endsAt?: string, mayBeEmpty = false): Expression {
    const tokens = this.#tokens;
    const isEnd = (): boolean =>
      ["variable_end", "block_end"].includes(tokens.current.kind) ||
      tokens.isOperator(")") ||
      (endsAt !== undefined && tokens.isName(endsAt));
    const items: Expression[] = [];
    let isTuple = false;
    while (!isEnd()) {
      items.push(parse());
      if (!tokens.skipOperator(",")) break;
      isTuple = true;
    }
    if (!isTuple && items.length === 1) return items[0]!;
    if (items.length === 0 && !mayBeEmpty)
      tokens.fail(`Expected an expression, got ${describe(tokens.current)}`);
    return { kind: "tuple", items };
  }

  expression(): Expression {
    if (++this.#depth > depthMax)
      this.#tokens.fail(`expressions are nested more than ${depthMax} levels deep`);
    let node = this.or();
    while (this.#tokens.skipName("if")) {
      const test = this.or();
      const otherwise = this.#tokens.skipName("else") ? this.expression() : null;
      node = { kind: "conditional", test, yes: node, otherwise };
    }
    this.#depth--;
    return node;
  }

  or(): Expression {
    let left = this.#and();
    while (this.#tokens.skipName("or")) left = { kind: "or", left, right: this.#and() };
    return left;
  }

  #and(): Expression {
    let left = this.#not();
    while (this.#tokens.skipName("and")) left = { kind: "and", left, right: this.#not() };
    return left;
  }

  #not(): Expression {
    let negations = 0;
    while (this.#tokens.skipName("not")) negations++;
    let node = this.#compare();
    for (; negations > 0; negations--) node = { kind: "not", operand: node };
    return node;
  }

  #compare(): Expression {
    const first = this.#sum();
    const rest: (readonly [CompareOperator, Expression])[] = [];
    for (;;) {
      const operator = this.#compareOperator();
      if (operator === undefined) break;
      rest.push([operator, this.#sum()]);
    }
    return rest.length === 0 ? first : { kind: "compare", first, rest };
  }

  #compareOperator(): CompareOperator | undefined {
    const tokens = this.#tokens;
    const { current, following } = tokens;
    if (current.kind === "operator" && compareOperators.includes(current.text)) {
      return tokens.next().text as CompareOperator;
    }
    if (tokens.skipName("in")) return "in";
    if (!tokens.isName("not") || following.kind !== "name" || following.text !== "in") return undefined;
    tokens.next();
    tokens.next();
    return "not in";
  }

  #binary(operators: readonly string[], operand: () => Expression): Expression {
    let left = operand();
    while (this.#tokens.current.kind === "operator" && operators.includes(this.#tokens.current.text)) {
      const operator = this.#tokens.next().text as BinaryOperator;
      left = { kind: "binary", operator, left, right: operand() };
    }
    return left;
  }

  #sum(): Expression {
    return this.#binary(additive, () => this.#concat());
  }

  #concat(): Expression {
    const parts = [this.#product()];
    while (this.#tokens.skipOperator("~")) parts.push(this.#product());
    return parts.length === 1 ? parts[0]! : { kind: "concat", parts };
  }

  #product(): Expression {
    return this.#binary(multiplicative, () => this.#binary(["**"], () => this.#unary()));
  }

  #unary(): Expression {
    return this.#filters(this.#signed());
  }

  #signed(): Expression {
    const signs: ("+" | "-")[] = [];
    while (this.#tokens.isOperator("-") || this.#tokens.isOperator("+")) {
      signs.push(this.#tokens.next().text as "+" | "-");
    }
    let node = this.#postfix(this.primary());
    for (const sign of signs.reverse()) node = this.#postfix({ kind: "sign", sign, operand: node });
    return node;
  }

  primary(): Expression {
    const tokens = this.#tokens;
    const { current } = tokens;
    switch (current.kind) {
      case "name":
        tokens.next();
        return constantOrName(current.text);
      case "string": {
        let value = "";
        while (tokens.current.kind === "string") value += tokens.next().text;
        return { kind: "constant", value };
      }
      case "integer":
        tokens.next();
        return { kind: "constant", value: current.value };
      case "float":
        tokens.next();
        return { kind: "constant", value: Number(current.text) };
    }
    if (tokens.skipOperator("(")) {
      const inner = this.tuple(undefined, undefined, true);
      tokens.expectOperator(")");
      return inner;
    }
    if (tokens.skipOperator("["))
      return { kind: "list", items: this.#separated("]", () => this.expression()) };
    if (tokens.skipOperator("{")) return { kind: "dict", pairs: this.#separated("}", () => this.#pair()) };
    return tokens.fail(`unexpected ${describe(current)}`);
  }

  /** A name, `name.attribute`, or another primary, which cannot be assigned to. */
  assignable(): Expression {
    const node = this.primary();
    if (node.kind !== "name" || !this.#tokens.skipOperator(".")) return node;
    return { kind: "attribute", object: node, name: this.#tokens.expectName() };
  }

  #pair(): readonly [Expression, Expression] {
    const key = this.expression();
    this.#tokens.expectOperator(":");
    return [key, this.expression()];
  }

  /** Comma-separated items, with an optional trailing comma, up to the closing bracket. */
  #separated<Item>(closer: string, parse: () => Item): Item[] {
    const items: Item[] = [];
    while (!this.#tokens.skipOperator(closer)) {
      if (items.length > 0) {
        this.#tokens.expectOperator(",");
        if (this.#tokens.skipOperator(closer)) break;
      }
      items.push(parse());
    }
    return items;
  }

  #postfix(start: Expression): Expression {
    let node = start;
    for (;;) {
      if (this.#tokens.skipOperator(".")) node = this.#member(node);
      else if (this.#tokens.skipOperator("[")) node = this.#subscript(node);
      else if (this.#tokens.isOperator("(")) node = this.call(node);
      else return node;
    }
  }

  #member(object: Expression): Expression {
    const token = this.#tokens.next();
    if (token.kind === "name") return { kind: "attribute", object, name: token.text };
    if (token.kind === "integer")
      return { kind: "item", object, key: { kind: "constant", value: token.value } };
    return this.#tokens.fail("expected name or number");
  }

  #subscript(object: Expression): Expression {
    const items: (Expression | SliceBounds)[] = [];
    while (!this.#tokens.skipOperator("]")) {
      if (items.length > 0) this.#tokens.expectOperator(",");
      items.push(this.#subscribed());
    }
    const [only] = items;
    if (items.length === 1 && Array.isArray(only)) {
      return { kind: "slice", object, bounds: only as unknown as SliceBounds };
    }
    if (items.some((item) => Array.isArray(item)))
      this.#tokens.fail("a slice cannot stand among several keys");
    const keys = items as Expression[];
    return { kind: "item", object, key: keys.length === 1 ? keys[0]! : { kind: "tuple", items: keys } };
  }

  #subscribed(): Expression | SliceBounds {
    const tokens = this.#tokens;
    const isEnd = (): boolean => tokens.isOperator("]") || tokens.isOperator(",");
    let start: Expression | null = null;
    if (!tokens.isOperator(":")) {
      start = this.expression();
      if (!tokens.isOperator(":")) return start;
    }
    tokens.next();
    const stop = tokens.isOperator(":") || isEnd() ? null : this.expression();
    const step = tokens.skipOperator(":") && !isEnd() ? this.expression() : null;
    return [start, stop, step];
  }

  call(callee: Expression): CallExpression {
    return { kind: "call", callee, args: this.#callArguments() };
  }

  #callArguments(): CallSyntax {
    const tokens = this.#tokens;
    const positional: Expression[] = [];
    const named: (readonly [string, Expression])[] = [];
    let restPositional: Expression | null = null;
    let restNamed: Expression | null = null;
    const ensure = (isRight: boolean): void => {
      if (!isRight) tokens.fail("invalid syntax for function call expression");
    };
    tokens.expectOperator("(");
    this.#separated(")", () => {
      const { current, following } = tokens;
      if (tokens.skipOperator("*")) {
        ensure(restPositional === null && restNamed === null);
        restPositional = this.expression();
      } else if (tokens.skipOperator("**")) {
        ensure(restNamed === null);
        restNamed = this.expression();
      } else if (current.kind === "name" && following.kind === "operator" && following.text === "=") {
        ensure(restNamed === null);
        tokens.next();
        tokens.next();
        if (named.some(([name]) => name === current.text))
          tokens.fail(`keyword argument repeated: ${current.text}`);
        named.push([current.text, this.expression()]);
      } else {
        ensure(restPositional === null && restNamed === null && named.length === 0);
        positional.push(this.expression());
      }
    });
    return { positional, named, restPositional, restNamed };
  }

  #filters(start: Expression): Expression {
    let node = start;
    for (;;) {
      if (this.#tokens.skipOperator("|")) node = this.filter(node);
      else if (this.#tokens.skipName("is")) node = this.#test(node);
      else if (this.#tokens.isOperator("(")) node = this.call(node);
      else return node;
    }
  }

  /** A filter's name and arguments, after the bar. */
  filter(input: Expression | null): Expression {
    const name = this.#dottedName();
    const args = this.#tokens.isOperator("(") ? this.#callArguments() : noArguments;
    return { kind: "filter", name, input, args };
  }

  /** `|a|b`: null when there is none. */
  filterChain(start: Expression | null): Expression | null {
    let node = start;
    while (this.#tokens.skipOperator("|")) node = this.filter(node);
    return node;
  }

  #test(input: Expression): Expression {
    const tokens = this.#tokens;
    const isNegated = tokens.skipName("not");
    const name = this.#dottedName();
    const node: Expression = { kind: "test", name, input, args: this.#testArguments() };
    return isNegated ? { kind: "not", operand: node } : node;
  }

  /** Arguments in brackets, or one operand without them. */
  #testArguments(): CallSyntax {
    const tokens = this.#tokens;
    if (tokens.isOperator("(")) return this.#callArguments();
    const { kind } = tokens.current;
    const begins =
      ["name", "string", "integer", "float"].includes(kind) ||
      tokens.isOperator("[") ||
      tokens.isOperator("{");
    if (!begins || tokens.isName("else") || tokens.isName("or") || tokens.isName("and")) return noArguments;
    if (tokens.isName("is")) tokens.fail("You cannot chain multiple tests with is");
    return { ...noArguments, positional: [this.#postfix(this.primary())] };
  }

  #dottedName(): string {
    let name = this.#tokens.expectName();
    while (this.#tokens.skipOperator(".")) name += `.${this.#tokens.expectName()}`;
    return name;
  }
}

const constants: Readonly<Record<string, boolean | null>> = {
  true: true,
  True: true,
  false: false,
  False: false,
  none: null,
  None: null,
};

function constantOrName(name: string): Expression {
  return Object.hasOwn(constants, name)
    ? { kind: "constant", value: constants[name]! }
    : { kind: "name", name };
}
