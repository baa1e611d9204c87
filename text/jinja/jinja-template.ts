/** A template, as Python's jinja2 and transformers' environment read and render it. */
import { Budget, defaultLimits, type RenderLimits } from "./budget.ts";
import { JinjaError } from "./errors.ts";
import { globals } from "./globals.ts";
import { renderBody } from "./interpreter.ts";
import { parse } from "./parser.ts";
import { Runtime } from "./runtime.ts";
import { Scope } from "./scope.ts";
import type { Body } from "./syntax.ts";
import type { Value } from "./values.ts";

export interface RenderContext {
  readonly variables: ReadonlyMap<string, Value>;
  /** For templates that name the date. */
  readonly now: Date;
  readonly limits?: RenderLimits;
  /** Asked now and then; when false, rendering fails. Default: it is. */
  readonly isWanted?: () => boolean;
  /** Characters in the variables that stand for others: see Runtime. */
  readonly standIns?: ReadonlyMap<string, string>;
}

export class JinjaTemplate {
  readonly #body: Body;

  /** Throws JinjaError when the text is not a template. */
  constructor(source: string) {
    this.#body = guarded(() => parse(source));
  }

  /** Throws JinjaError, also when a limit is passed. */
  render(context: RenderContext): string {
    const { variables, now, limits = defaultLimits, standIns = new Map(), isWanted = () => true } = context;
    const rt = new Runtime(new Budget(limits, isWanted), now, standIns);
    const outer = new Scope(null);
    for (const [name, value] of [...globals, ...variables]) outer.set(name, value);
    return guarded(() => renderBody(rt, this.#body, new Scope(outer)));
  }
}

/** Values nested too deep for the stack are the template's fault too. */
function guarded<Result>(run: () => Result): Result {
  try {
    return run();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new JinjaError(
      "LimitError",
      `the chat template goes too deep, or makes too much: ${error.message}`,
    );
  }
}
