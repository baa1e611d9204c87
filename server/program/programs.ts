import type { Fleet } from "../../scheduler/fleet/fleet.ts";
import { CallEstimates } from "../../scheduler/program/call-estimates.ts";
import type { TextTools } from "../../scheduler/program/transforms/value.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import type { Generator } from "../answer/generator.ts";
import { ApiError } from "../http/errors.ts";
import { AnswerMeasures } from "../http/measure.ts";
import type { Telemetry } from "../http/telemetry.ts";
import type { PromptServices } from "../request/prompt.ts";
import type { HintFleet } from "./heads.ts";
import { HostedProgram, type HostServices, type ProgramOwner } from "./hosted.ts";
import { type HostLimits, hostLimits, Turns } from "./limits.ts";

/** Dependencies of programs. */
export interface ProgramDeps extends PromptServices {
  readonly generator: Generator;
  readonly fleet: HintFleet & Pick<Fleet, "estimated">;
  readonly engines: number;
  readonly telemetry: Telemetry;
}

/** Maximum prompts of calls that are tokenised at once. */
const encodingMax = 16;

/** Opens programs on a server's tokeniser and fleet. */
export function openPrograms(deps: ProgramDeps, limits: Partial<HostLimits> = {}): Programs {
  return new Programs({
    ...deps,
    clock: { nowMs: () => performance.now() },
    textTools: textToolsOf(deps.tokenizer),
    turns: new Turns(encodingMax),
    estimates: new CallEstimates(() => deps.fleet.estimated[0]!),
    limits: { ...hostLimits, ...limits },
    traces: deps.telemetry.traces,
    measure: (request) => {
      const measures = new AnswerMeasures(deps.telemetry, request, performance.now());
      return (event, generation) => measures.note(event, generation);
    },
  });
}

/** All open programs, by id. */
export class Programs {
  readonly #services: HostServices;
  readonly #open = new Map<
    string,
    { readonly program: HostedProgram; idle: ReturnType<typeof setTimeout> }
  >();
  #opened = 0;
  readonly #onIdle: (() => void)[] = [];
  readonly #countOf = new Map<string, number>();

  constructor(services: HostServices) {
    this.#services = services;
  }

  /** Resolves when no program is open. */
  whenIdle(): Promise<void> {
    if (this.#open.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#onIdle.push(resolve));
  }

  /** Number of open programs. */
  get active(): number {
    return this.#open.size;
  }

  get limits(): HostLimits {
    return this.#services.limits;
  }

  /** Opens a program. `headers`: of the request that asks for it, for its trace. Throws 429 if the key has too many. */
  open(owner: ProgramOwner, headers: Headers | null = null): HostedProgram {
    const { programsPerKeyMax } = this.#services.limits;
    const count = this.#countOf.get(owner.tenant) ?? 0;
    if (count >= programsPerKeyMax) throw tooMany(count, programsPerKeyMax);
    this.#countOf.set(owner.tenant, count + 1);
    const id = `prog_${crypto.randomUUID().replaceAll("-", "")}`;
    const program = new HostedProgram(id, this.#opened++, owner, this.#services, headers);
    this.#open.set(program.id, { program, idle: this.#idleTimer(program) });
    program.onActivity = () => this.touch(program);
    return program;
  }

  /** Program of that id, if it belongs to the tenant. Throws 404 otherwise. */
  find(tenant: string, id: string): HostedProgram {
    const program = this.#open.get(id)?.program;
    if (program === undefined || program.owner.tenant !== tenant) throw notFound(id);
    this.touch(program);
    return program;
  }

  /** Open programs of a tenant, newest first. */
  openOf(tenant: string): HostedProgram[] {
    const all = Array.from(this.#open.values(), ({ program }) => program);
    return all.filter(({ owner }) => owner.tenant === tenant).reverse();
  }

  /** True if there is an open program of that id that belongs to the tenant. */
  has(tenant: string, id: string): boolean {
    return this.#open.get(id)?.program.owner.tenant === tenant;
  }

  /** Ends and removes a program. */
  close(program: HostedProgram, reason: string): void {
    const entry = this.#open.get(program.id);
    if (entry === undefined) return;
    clearTimeout(entry.idle);
    this.#open.delete(program.id);
    if (this.#open.size === 0) for (const tell of this.#onIdle.splice(0)) tell();
    const { tenant } = program.owner;
    const left = this.#countOf.get(tenant)! - 1;
    if (left > 0) this.#countOf.set(tenant, left);
    else this.#countOf.delete(tenant);
    program.end(reason);
  }

  /** Ends and removes all programs. */
  closeAll(reason: string): void {
    for (const { program } of [...this.#open.values()]) this.close(program, reason);
  }

  /** Restarts the idle timer after a client's request. */
  touch(program: HostedProgram): void {
    const entry = this.#open.get(program.id);
    if (entry === undefined) return;
    clearTimeout(entry.idle);
    entry.idle = this.#idleTimer(program);
  }

  #idleTimer(program: HostedProgram): ReturnType<typeof setTimeout> {
    const { idleMs } = this.#services.limits;
    const timer = setTimeout(() => {
      if (program.isBusy) this.touch(program);
      else this.close(program, `the program was ended after ${idleMs} ms without a request`);
    }, idleMs);
    timer.unref();
    return timer;
  }
}

function tooMany(count: number, max: number): ApiError {
  return new ApiError(
    429,
    "rate_limit_error",
    `this key has ${count} programs open, and ${max} are allowed: end some`,
    {
      apiCode: "too_many_programs",
      retryAfterSeconds: 5,
    },
  );
}

function notFound(id: string): ApiError {
  return new ApiError(404, "not_found_error", `there is no open program ${JSON.stringify(id.slice(0, 64))}`);
}

/** Token-based text functions for transforms. */
function textToolsOf(tokenizer: Tokenizer): TextTools {
  return {
    truncate(text, tokensMax) {
      const tokens = tokenizer.encode(text, { addSpecialTokens: false });
      if (tokens.length <= tokensMax) return text;
      // A cut within a character decodes to a replacement character; at most three tokens earlier there is a
      // clean cut.
      for (let count = tokensMax; count > Math.max(0, tokensMax - 4); count--) {
        const beginning = tokenizer.decode(tokens.slice(0, count), { skipSpecialTokens: false });
        if (text.startsWith(beginning)) return beginning;
      }
      return tokenizer
        .decode(tokens.slice(0, tokensMax), { skipSpecialTokens: false })
        .replace(/\uFFFD+$/, "");
    },
  };
}
