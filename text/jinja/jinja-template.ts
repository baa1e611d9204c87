/** A template that parses and renders like Python's jinja2 with transformers' environment. */
import { Budget, defaultLimits, type RenderLimits } from "./budget.ts";
import { argumentsIn } from "./check-names.ts";
import { JinjaError } from "./errors.ts";
import { globals } from "./globals.ts";
import { renderBody } from "./interpreter.ts";
import { parse } from "./parser.ts";
import { Runtime } from "./runtime.ts";
import type { Body } from "./syntax.ts";
import { Scope, type Value } from "./values.ts";

export interface RenderContext {
  readonly variables: ReadonlyMap<string, Value>;
  /** Date for templates that name it. */
  readonly now: Date;
  readonly limits?: RenderLimits;
  /** Called now and then; false cancels the rendering. Default: always true. */
  readonly isWanted?: () => boolean;
  /** Stand-ins in the variables and their characters: see Runtime. */
  readonly standIns?: ReadonlyMap<string, string>;
}

export class JinjaTemplate {
  readonly #body: Body;
  #arguments: ReadonlySet<string> | null = null;

  /** Throws JinjaError for an invalid template. */
  constructor(source: string) {
    this.#body = guarded(() => parse(source));
  }

  /** Names of the variables that the template takes from outside. */
  get arguments(): ReadonlySet<string> {
    this.#arguments ??= argumentsIn(this.#body);
    return this.#arguments;
  }

  /** Renders the template. Throws JinjaError, also beyond a limit. */
  render(context: RenderContext): string {
    const { variables, now, limits = defaultLimits, standIns = new Map(), isWanted = () => true } = context;
    const rt = new Runtime(new Budget(limits, isWanted), now, standIns);
    const outer = new Scope(null);
    for (const [name, value] of [...globals, ...variables]) outer.set(name, value);
    return guarded(() => renderBody(rt, this.#body, new Scope(outer)));
  }
}

/** Turns a stack overflow, caused by deeply nested values, into a JinjaError. */
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
