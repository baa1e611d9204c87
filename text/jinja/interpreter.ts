/** Runs a template's statements and macros; the bodies of `call` blocks are macros too. */
import { fail } from "./errors.ts";
import { argumentsOf, call, evaluate } from "./evaluate.ts";
import { Loop } from "./loop.ts";
import { bare } from "./markup.ts";
import { str } from "./print.ts";
import type { Runtime } from "./runtime.ts";
import type { Body, Expression, MacroSyntax, Statement, Target } from "./syntax.ts";
import {
  type Arguments,
  Callable,
  Dict,
  isTrue,
  iterate,
  Lazy,
  Namespace,
  or,
  Scope,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

type Of<Kind extends Statement["kind"]> = Extract<Statement, { kind: Kind }>;

/** End of a body: normal, or a `break` or `continue` for its loop. */
type Ending = "end" | "break" | "continue";

/** Text of a body. */
export function renderBody(rt: Runtime, body: Body, scope: Scope): string {
  const output = new Output(rt);
  new Interpreter(rt, output).run(body, scope);
  return output.text();
}

class Output {
  readonly #rt: Runtime;
  readonly #pieces: string[] = [];
  #length = 0;

  constructor(rt: Runtime) {
    this.#rt = rt;
  }

  add(piece: string): void {
    this.#length += piece.length;
    this.#rt.budget.text(this.#length, piece.length);
    this.#pieces.push(piece);
  }

  text(): string {
    return this.#pieces.join("");
  }
}

class Interpreter {
  readonly #rt: Runtime;
  #output: Output;

  constructor(rt: Runtime, output: Output) {
    this.#rt = rt;
    this.#output = output;
  }

  run(body: Body, scope: Scope): Ending {
    for (const statement of body) {
      const ending = this.#statement(statement, scope);
      if (ending !== "end") return ending;
    }
    return "end";
  }

  #statement(node: Statement, scope: Scope): Ending {
    const rt = this.#rt;
    rt.budget.spend(1);
    switch (node.kind) {
      case "text":
        this.#output.add(node.text);
        return "end";
      case "print":
        this.#output.add(str(rt, evaluate(rt, node.value, scope)));
        return "end";
      case "set":
        this.#assign(node.target, evaluate(rt, node.value, scope), scope);
        return "end";
      case "if":
        return this.#if(node, scope);
      case "for":
        return this.#for(node, scope);
      case "set block":
        return this.#setBlock(node, scope);
      case "filter block": {
        const { text, ending } = this.#captured(node.body, new Scope(scope));
        if (ending === "end") this.#output.add(expectText(evaluate(rt, node.filter, scope, text)));
        return ending;
      }
      case "macro":
        scope.set(node.macro.name, macro(rt, node.macro, scope));
        return "end";
      case "call block":
        this.#callBlock(node, scope);
        return "end";
      case "with":
        return this.#with(node, scope);
      case "scope":
        return this.#deeper(() => this.run(node.body, new Scope(scope)));
      case "break":
      case "continue":
        return node.kind;
      case "load":
        return fail("TypeError", `{% ${node.tag} %}: a chat template cannot read another template`);
    }
  }

  #deeper<Result>(run: () => Result): Result {
    this.#rt.budget.enter();
    const result = run();
    this.#rt.budget.leave();
    return result;
  }

  #if(node: Of<"if">, scope: Scope): Ending {
    const branch = node.branches.find(({ test }) => isTrue(evaluate(this.#rt, test, scope)));
    return this.#deeper(() => this.run(branch === undefined ? node.otherwise : branch.body, scope));
  }

  #for(node: Of<"for">, scope: Scope): Ending {
    const iterable = evaluate(this.#rt, node.iterable, scope);
    return this.#deeper(() => this.#loop(node, iterable, scope, 0));
  }

  #loop(node: Of<"for">, iterable: Value, scope: Scope, depth0: number): Ending {
    const recurse = (inner: Value, depth: number): Value => {
      const { text } = this.#capturedBy(() => this.#deeper(() => this.#loop(node, inner, scope, depth)));
      return text;
    };
    const items =
      node.test === null ? iterable : new Lazy(this.#chosen(node.target, node.test, iterable, scope));
    const loop = new Loop(this.#rt, items, depth0, node.isRecursive ? recurse : null);
    // As in Jinja: iterations that `break` or `continue` cut short do not keep `else` from running.
    let isWithoutEnd = true;
    for (let item = loop.next(); item !== undefined; item = loop.next()) {
      const inner = new Scope(scope);
      inner.set("loop", loop.value);
      this.#assign(node.target, item, inner);
      const ending = this.run(node.body, inner);
      if (ending === "break") break;
      if (ending === "end") isWithoutEnd = false;
    }
    return isWithoutEnd ? this.run(node.otherwise, new Scope(scope)) : "end";
  }

  /** `for … if`: evaluates the condition when the loop needs the item. */
  *#chosen(target: Target, test: Expression, iterable: Value, scope: Scope): Generator<Value> {
    for (const item of iterate(iterable)) {
      const inner = new Scope(scope);
      this.#rt.budget.spend(1);
      this.#assign(target, item, inner);
      if (isTrue(evaluate(this.#rt, test, inner))) yield item;
    }
  }

  #setBlock(node: Of<"set block">, scope: Scope): Ending {
    const { text, ending } = this.#captured(node.body, new Scope(scope));
    if (ending !== "end") return ending;
    const value = node.filter === null ? text : evaluate(this.#rt, node.filter, scope, text);
    this.#assign(node.target, value, scope);
    return "end";
  }

  #callBlock({ call: node, caller }: Of<"call block">, scope: Scope): void {
    const rt = this.#rt;
    const of = (inner: Expression): Value => evaluate(rt, inner, scope);
    const callee = of(node.callee);
    const args = argumentsOf(node.args, of);
    const named = new Map(args.named).set("caller", macro(rt, caller, scope));
    this.#output.add(str(rt, call(rt, callee, { ...args, named })));
  }

  #with(node: Of<"with">, scope: Scope): Ending {
    const inner = new Scope(scope);
    const values = node.bindings.map(([, value]) => evaluate(this.#rt, value, scope));
    for (const [index, [target]] of node.bindings.entries()) this.#assign(target, values[index]!, inner);
    return this.#deeper(() => this.run(node.body, inner));
  }

  #captured(body: Body, scope: Scope): { readonly text: string; readonly ending: Ending } {
    return this.#capturedBy(() => this.#deeper(() => this.run(body, scope)));
  }

  #capturedBy(run: () => Ending): { readonly text: string; readonly ending: Ending } {
    const around = this.#output;
    const own = new Output(this.#rt);
    this.#output = own;
    const ending = run();
    this.#output = around;
    return { text: own.text(), ending };
  }

  #assign(target: Target, value: Value, scope: Scope): void {
    if (target.kind === "name") scope.set(target.name, value);
    else if (target.kind === "namespace") this.#setAttribute(target.name, target.attribute, value, scope);
    else {
      const values = [...iterate(value)];
      const wanted = target.items.length;
      if (values.length < wanted)
        fail("ValueError", `not enough values to unpack (expected ${wanted}, got ${values.length})`);
      if (values.length > wanted) fail("ValueError", `too many values to unpack (expected ${wanted})`);
      for (const [index, item] of target.items.entries()) this.#assign(item, values[index]!, scope);
    }
  }

  #setAttribute(name: string, attribute: string, value: Value, scope: Scope): void {
    const namespace = scope.get(name);
    if (!(namespace instanceof Namespace))
      fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object");
    (namespace as Namespace).attributes.set(checkedName(attribute), value);
  }
}

/** Text of a filter block's value. As in Python, only texts are allowed. */
function expectText(value: Value): string {
  const text = bare(value);
  return typeof text === "string"
    ? text
    : fail("TypeError", `expected str instance, ${typeName(value)} found`);
}

/** A namespace made of `namespace(…)`'s arguments. */
export function namespaceOf(attributes: Dict): Namespace {
  for (const name of attributes.keys()) if (typeof name === "string") checkedName(name);
  return new Namespace(attributes);
}

function checkedName(name: string): string {
  if (!name.startsWith("_")) return name;
  return fail(
    "SecurityError",
    `Chat templates cannot store underscore-prefixed attributes on a namespace, but got '${name}'. Please rename the attribute.`,
  );
}

/** A macro. `around` is the scope of its definition, not of its call. */
function macro(rt: Runtime, syntax: MacroSyntax, around: Scope): Callable {
  const run = (_: Runtime, args: Arguments): Value => {
    const scope = new Scope(around);
    bind(rt, syntax, args, scope);
    rt.budget.enter();
    const text = renderBody(rt, syntax.body, scope);
    rt.budget.leave();
    return text;
  };
  return new Callable(syntax.name, run, "Macro", (name) => macroAttribute(syntax, name));
}

function bind(rt: Runtime, { name, parameters, reads }: MacroSyntax, args: Arguments, scope: Scope): void {
  const named = new Map(args.named);
  for (const [index, parameter] of parameters.entries()) {
    let value = args.positional[index];
    if (value === undefined && named.has(parameter.name)) {
      value = named.get(parameter.name);
      named.delete(parameter.name);
    }
    if (value === undefined && parameter.fallback !== null) value = evaluate(rt, parameter.fallback, scope);
    scope.set(
      parameter.name,
      or(value, () => new Undefined(`parameter '${parameter.name}' was not provided`)),
    );
  }
  if (reads.has("caller")) {
    scope.set(
      "caller",
      or(named.get("caller"), () => new Undefined("No caller defined")),
    );
    named.delete("caller");
  }
  if (reads.has("kwargs")) {
    const dict = new Dict();
    for (const [key, value] of named) dict.set(key, value);
    scope.set("kwargs", dict);
  } else if (named.size > 0) {
    const [unknown] = named.keys();
    fail("TypeError", `macro '${name}' takes no keyword argument '${unknown}'`);
  }
  if (reads.has("varargs")) scope.set("varargs", new Tuple(args.positional.slice(parameters.length)));
  else if (args.positional.length > parameters.length)
    fail("TypeError", `macro '${name}' takes not more than ${parameters.length} argument(s)`);
}

function macroAttribute({ name, parameters, reads }: MacroSyntax, asked: string): Value | undefined {
  switch (asked) {
    case "name":
      return name;
    case "arguments":
      return new Tuple(parameters.map((parameter) => parameter.name));
    case "caller":
      return reads.has("caller");
    case "catch_kwargs":
      return reads.has("kwargs");
    case "catch_varargs":
      return reads.has("varargs");
    default:
      return undefined;
  }
}
