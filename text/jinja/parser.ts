/** Parser of a template's statements. */
import { checkNames, namesIn } from "./check-names.ts";
import { fail } from "./errors.ts";
import { ExpressionParser } from "./expressions.ts";
import { tokenize } from "./lexer.ts";
import type { Body, Expression, MacroSyntax, Parameter, Statement, Target } from "./syntax.ts";
import { TokenStream } from "./tokens.ts";

const depthMax = 100;

/** Syntax tree of a template. Throws JinjaError of kind TemplateSyntaxError or TemplateAssertionError. */
export function parse(template: string): Body {
  const body = new Parser(new TokenStream(tokenize(template))).template();
  checkNames(body);
  return body;
}

class Parser {
  readonly #tokens: TokenStream;
  readonly #expressions: ExpressionParser;
  /** Open tags, for messages. */
  readonly #open: string[] = [];
  /** True inside a loop, where `break` and `continue` are allowed. */
  #isInLoop = false;

  constructor(tokens: TokenStream) {
    this.#tokens = tokens;
    this.#expressions = new ExpressionParser(tokens);
  }

  template(): Body {
    return this.#body([]);
  }

  /** Statements up to one of the tags, which is left unread; up to the template's end if there are none. */
  #body(ends: readonly string[]): Body {
    const tokens = this.#tokens;
    const body: Statement[] = [];
    for (;;) {
      const { current } = tokens;
      if (current.kind === "data") {
        tokens.next();
        body.push({ kind: "text", text: current.text });
      } else if (current.kind === "variable_begin") {
        tokens.next();
        body.push({ kind: "print", value: this.#expressions.tuple() });
        tokens.expectKind("variable_end");
      } else if (current.kind === "block_begin") {
        tokens.next();
        if (tokens.current.kind === "name" && ends.includes(tokens.current.text)) return body;
        body.push(...this.#statement(ends));
        tokens.expectKind("block_end");
      } else if (ends.length === 0) return body;
      else return tokens.fail(`Unexpected end of template. Jinja was looking for ${ends.join(" or ")}.`);
    }
  }

  /** Body of an open tag, and the one of `ends` that ended it, which is read. */
  #block(ends: readonly string[]): { readonly body: Body; readonly end: string } {
    this.#tokens.skipOperator(":");
    this.#tokens.expectKind("block_end");
    const body = this.#body(ends);
    return { body, end: this.#tokens.next().text };
  }

  /** Parses the body of a macro, in which `break` and `continue` do not reach an enclosing loop. */
  #outsideLoops<Result>(parse: () => Result): Result {
    const wasInLoop = this.#isInLoop;
    this.#isInLoop = false;
    const result = parse();
    this.#isInLoop = wasInLoop;
    return result;
  }

  #statement(ends: readonly string[]): Statement[] {
    const tokens = this.#tokens;
    if (tokens.current.kind !== "name") tokens.fail("tag name expected");
    const tag = tokens.next().text;
    this.#open.push(tag);
    if (this.#open.length > depthMax) tokens.fail(`tags are nested more than ${depthMax} levels deep`);
    const statements = this.#tag(tag, ends);
    this.#open.pop();
    return statements;
  }

  #tag(tag: string, ends: readonly string[]): Statement[] {
    switch (tag) {
      case "for":
        return [this.#for()];
      case "if":
        return [this.#if()];
      case "set":
        return [this.#set()];
      case "print":
        return this.#print();
      case "macro":
        return [{ kind: "macro", macro: this.#macro() }];
      case "call":
        return [this.#callBlock()];
      case "filter":
        return [
          { kind: "filter block", filter: this.#filterOfBlock(), body: this.#block(["endfilter"]).body },
        ];
      case "with":
        return [this.#with()];
      case "block":
        return [this.#namedBlock()];
      case "generation":
        return [{ kind: "scope", body: this.#outsideLoops(() => this.#block(["endgeneration"]).body) }];
      case "autoescape":
        return [this.#autoescape()];
      case "break":
      case "continue":
        if (!this.#isInLoop) fail("SyntaxError", `'${tag}' outside loop`);
        return [{ kind: tag }];
      case "include":
      case "import":
      case "from":
      case "extends":
        while (!["block_end", "eof"].includes(this.#tokens.current.kind)) this.#tokens.next();
        return [{ kind: "load", tag }];
      default:
        return this.#unknownTag(tag, ends);
    }
  }

  #unknownTag(tag: string, ends: readonly string[]): never {
    const wanted = ends.length === 0 ? "" : ` Jinja was looking for ${ends.join(" or ")}.`;
    const innermost = this.#open.at(-2);
    const open =
      innermost === undefined ? "" : ` The innermost block that needs to be closed is '${innermost}'.`;
    return this.#tokens.fail(`Encountered unknown tag '${tag}'.${wanted}${open}`);
  }

  #for(): Statement {
    const tokens = this.#tokens;
    const target = this.#target("in");
    tokens.expectName("in");
    const iterable = this.#expressions.tuple(() => this.#expressions.or(), "recursive");
    const test = tokens.skipName("if") ? this.#expressions.expression() : null;
    const isRecursive = tokens.skipName("recursive");
    const wasInLoop = this.#isInLoop;
    this.#isInLoop = true;
    const { body, end } = this.#block(["endfor", "else"]);
    this.#isInLoop = wasInLoop;
    const otherwise = end === "else" ? this.#block(["endfor"]).body : [];
    return { kind: "for", target, iterable, test, isRecursive, body, otherwise };
  }

  #if(): Statement {
    const branches: { test: Expression; body: Body }[] = [];
    for (;;) {
      const test = this.#expressions.tuple(() => this.#expressions.or());
      const { body, end } = this.#block(["elif", "else", "endif"]);
      branches.push({ test, body });
      if (end === "elif") continue;
      const otherwise = end === "else" ? this.#block(["endif"]).body : [];
      return { kind: "if", branches, otherwise };
    }
  }

  #set(): Statement {
    const target = this.#target();
    if (this.#tokens.skipOperator("=")) return { kind: "set", target, value: this.#expressions.tuple() };
    const filter = this.#expressions.filterChain(null);
    return { kind: "set block", target, filter, body: this.#block(["endset"]).body };
  }

  #print(): Statement[] {
    const printed: Statement[] = [];
    while (this.#tokens.current.kind !== "block_end") {
      if (printed.length > 0) this.#tokens.expectOperator(",");
      printed.push({ kind: "print", value: this.#expressions.expression() });
    }
    return printed;
  }

  #macro(): MacroSyntax {
    const name = this.#tokens.expectName();
    const parameters = this.#parameters();
    return macroOf(
      name,
      parameters,
      this.#outsideLoops(() => this.#block(["endmacro"]).body),
    );
  }

  #parameters(): Parameter[] {
    const tokens = this.#tokens;
    const parameters: Parameter[] = [];
    tokens.expectOperator("(");
    while (!tokens.isOperator(")")) {
      if (parameters.length > 0) tokens.expectOperator(",");
      const name = tokens.expectName();
      const fallback = tokens.skipOperator("=") ? this.#expressions.expression() : null;
      if (fallback === null && parameters.at(-1)?.fallback)
        tokens.fail("non-default argument follows default argument");
      parameters.push({ name, fallback });
    }
    tokens.next();
    return parameters;
  }

  #callBlock(): Statement {
    const parameters = this.#tokens.isOperator("(") ? this.#parameters() : [];
    const call = this.#expressions.expression();
    if (call.kind !== "call") return this.#tokens.fail("expected call");
    const body = this.#outsideLoops(() => this.#block(["endcall"]).body);
    return { kind: "call block", call, caller: macroOf("caller", parameters, body) };
  }

  #filterOfBlock(): Expression {
    return this.#expressions.filterChain(this.#expressions.filter(null))!;
  }

  #with(): Statement {
    const bindings: (readonly [Target, Expression])[] = [];
    while (this.#tokens.current.kind !== "block_end") {
      if (bindings.length > 0) this.#tokens.expectOperator(",");
      const target = this.#target();
      this.#tokens.expectOperator("=");
      bindings.push([target, this.#expressions.expression()]);
    }
    return { kind: "with", bindings, body: this.#block(["endwith"]).body };
  }

  #namedBlock(): Statement {
    const name = this.#tokens.expectName();
    this.#tokens.skipName("scoped");
    this.#tokens.skipName("required");
    const { body } = this.#outsideLoops(() => this.#block(["endblock"]));
    this.#tokens.skipName(name);
    return { kind: "scope", body };
  }

  #autoescape(): Statement {
    const isOn = this.#expressions.expression();
    if (isOn.kind !== "constant" || isOn.value !== false)
      this.#tokens.fail("autoescape is not supported in chat templates");
    return { kind: "scope", body: this.#block(["endautoescape"]).body };
  }

  #target(endsAt?: string): Target {
    return this.#asTarget(this.#expressions.tuple(() => this.#expressions.assignable(), endsAt));
  }

  #asTarget(node: Expression): Target {
    if (node.kind === "name") return node;
    if (node.kind === "tuple")
      return { kind: "tuple", items: node.items.map((item) => this.#asTarget(item)) };
    if (node.kind === "attribute" && node.object.kind === "name") {
      return { kind: "namespace", name: node.object.name, attribute: node.name };
    }
    return this.#tokens.fail(`can't assign to '${node.kind}'`);
  }
}

function macroOf(name: string, parameters: readonly Parameter[], body: Body): MacroSyntax {
  const reads = namesIn([body, parameters]);
  for (const parameter of parameters) reads.delete(parameter.name);
  return { name, parameters, body, reads };
}
