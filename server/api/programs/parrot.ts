/**
 * Parrot's own wire formats (OSDI 2024): the bodies of the paper, §7, and the routes of the client that its
 * authors published. A session of Parrot is a program here. Its client sends GETs with a JSON body, which
 * HTTP servers may drop. So a variable's id contains its session, and its value is awaited with latency.
 * Parrot's errors have status 500 with `error` and `traceback`.
 */
import type { Criteria, ProgramPart, PromptPart, TransformStep } from "../../../scheduler/program/spec.ts";
import type { CacheSaltFor } from "../../http/auth.ts";
import { ApiError, badRequest, quote } from "../../http/errors.ts";
import type { Call, Route } from "../../http/route.ts";
import type { HostedProgram } from "../../program/hosted.ts";
import type { Programs } from "../../program/programs.ts";
import type { ServedModel } from "../../request/served-model.ts";
import { Fields, fieldsOf, refusal } from "../fields.ts";
import type { Exchange } from "../respond.ts";
import { drawnAs } from "./call.ts";
import { criteriaOf, piecesOf, programRequestLimits, transformOf } from "./reading.ts";
import { valueOfWhenSettled } from "./variables.ts";
import { refusalError } from "./wire.ts";

/** Services of these routes. */
export interface ParrotDeps {
  readonly cacheSaltFor: CacheSaltFor;
  readonly programs: Programs;
  readonly model: ServedModel;
  exchangeOf(call: Call): Exchange;
}

interface Session {
  readonly id: number;
  readonly tenant: string;
  readonly hosted: HostedProgram;
  calls: number;
  variables: number;
}

/** Routes of `--parrot-api`. */
export function parrotRoutes(deps: ParrotDeps): readonly Route[] {
  const api = new ParrotApi(deps);
  const row = (method: Route["method"], path: string, answer: (call: Call) => unknown): Route => ({
    method,
    path,
    isPublic: false,
    handler: async (call) => {
      try {
        return await answer(call);
      } catch (error) {
        if (!(error instanceof ApiError) || error.status === 401) throw error;
        return Response.json({ error: error.message, traceback: "" }, { status: 500 });
      }
    },
  });
  return [
    row("POST", "/v1/session", (call) => api.open(call)),
    row("GET", "/v1/session/{id}", (call) => ({ session_id: api.session(call, call.rest).id })),
    row("DELETE", "/v1/session/{id}", (call) => api.close(call)),
    row("POST", "/v1/semantic_call", async (call) => api.submit(call, await call.readWork())),
    row("POST", "/v1/semantic_var", async (call) => api.declare(call, await call.readWork())),
    row("POST", "/v1/semantic_var/{id}", async (call) => api.set(call, await call.readWork())),
    row("GET", "/v1/semantic_var/{id}", (call) =>
      api.get(call, call.rest, new URL(call.request.url).searchParams.get("criteria")),
    ),
    row("POST", "/v1/submit", async (call) => api.submitOfPaper(call, await call.readWork())),
    row("POST", "/v1/set", async (call) => api.setOfPaper(call, await call.readWork())),
    row("POST", "/v1/get", async (call) => api.getOfPaper(call, await call.readWork())),
    row("POST", "/v1/py_native_call", () => {
      throw badRequest("this server runs no code of its clients: compute it there, and set a variable");
    }),
  ];
}

type Body = Readonly<Record<string, unknown>>;

class ParrotApi {
  readonly #deps: ParrotDeps;
  readonly #sessions = new Map<number, Session>();
  #opened = 0;

  constructor(deps: ParrotDeps) {
    this.#deps = deps;
  }

  async open(call: Call): Promise<object> {
    await call.readWork();
    for (const { id, hosted } of this.#sessions.values()) if (hosted.isEnded) this.#sessions.delete(id);
    const id = this.#opened++;
    const owner = { tenant: call.tenant, cacheSalt: this.#deps.cacheSaltFor(call.tenant, "") };
    const hosted = this.#deps.programs.open(owner, call.trace?.headers);
    this.#sessions.set(id, { id, tenant: call.tenant, hosted, calls: 0, variables: 0 });
    // The API key of the request identifies the session's owner; the server ignores the `session_auth` that
    // clients send back.
    return { session_id: id, session_auth: "key" };
  }

  close(call: Call): object {
    const { id, hosted } = this.session(call, call.rest);
    this.#sessions.delete(id);
    this.#deps.programs.close(hosted, "the session was deleted");
    return {};
  }

  /** The session of this number. Throws 400 if the API key has none. */
  session({ tenant }: Call, given: unknown): Session {
    const session = this.#sessions.get(Number(given));
    if (session === undefined || session.tenant !== tenant || session.hosted.isEnded) {
      throw badRequest(`there is no session ${quote(given)}`, "session_id");
    }
    this.#deps.programs.touch(session.hosted);
    return session;
  }

  declare(call: Call, body: Body): object {
    const fields = new Fields(body);
    const session = this.session(call, fields.raw("session_id"));
    const name = this.#newVariable(session, fields.requiredString("var_name"));
    this.#add(session, { variables: [{ name, value: null }], nodes: [] });
    return { var_id: name };
  }

  set(call: Call, body: Body): object {
    return this.#set(this.#sessionOfVariable(call, call.rest), call.rest, new Fields(body));
  }

  /**
   * Sets a variable: `{semantic_var_id, content, session_id}`, modelled on the paper's two operations, which
   * define no body for it.
   */
  setOfPaper(call: Call, body: Body): object {
    const fields = new Fields(body);
    const session = this.session(call, fields.raw("session_id"));
    return this.#set(session, fields.requiredString("semantic_var_id"), fields);
  }

  #set({ hosted }: Session, variable: string, fields: Fields): object {
    const refused = hosted.set(variable, fields.requiredString("content"));
    if (refused !== null) throw refusalError(refused);
    return {};
  }

  /** Waits for the variable's value. */
  async get(call: Call, variable: string, criteria: string | null): Promise<object> {
    return await this.#valueOf(call, this.#sessionOfVariable(call, variable), variable, criteria);
  }

  /** POST /v1/semantic_call: a template and its parameters. */
  submit(call: Call, body: Body): object {
    const fields = new Fields(body);
    const session = this.session(call, fields.raw("session_id"));
    const template = fields.requiredString("template");
    const variables: { name: string; value: string | null }[] = [];
    const places = new Map<string, PromptPart>();
    const info: object[] = [];
    for (const [index, given] of (
      fields.list("parameters", programRequestLimits.placesMax) ?? []
    ).entries()) {
      const parameter = fieldsOf(given, `parameters[${index}]`);
      const name = parameter.requiredString("name");
      const isOutput = parameter.boolean("is_output") ?? false;
      let variable = parameter.string("var_id");
      if (variable === undefined) {
        variable = this.#newVariable(session, name);
        variables.push({ name: variable, value: isOutput ? null : parameter.requiredString("value") });
      }
      places.set(
        name,
        isOutput ? this.#output(variable, parameter, []) : { kind: "input", variable, transforms: [] },
      );
      info.push({ parameter_name: name, is_output: isOutput, var_name: name, var_id: variable });
    }
    const parts = partsOf(template, places, fields.boolean("remove_pure_fill") ?? true);
    const criteria = fields.string("output_criteria");
    const id = this.#submit(
      session,
      parts,
      variables,
      criteria === undefined ? null : criteriaFrom(criteria),
    );
    return { request_id: id, param_info: info };
  }

  /**
   * The paper's submit: `{prompt, placeholders: [{name, in_out, semantic_var_id, transforms}], session_id}`.
   * `in_out` is true or "out" for an output.
   */
  submitOfPaper(call: Call, body: Body): object {
    const fields = new Fields(body);
    const session = this.session(call, fields.raw("session_id"));
    const { variables: known } = session.hosted.program;
    const variables = new Map<string, { name: string; value: null }>();
    const places = new Map<string, PromptPart>();
    for (const [index, given] of (
      fields.list("placeholders", programRequestLimits.placesMax) ?? []
    ).entries()) {
      const placeholder = fieldsOf(given, `placeholders[${index}]`);
      const name = placeholder.requiredString("name");
      const variable = placeholder.string("semantic_var_id") ?? name;
      const direction = placeholder.raw("in_out");
      if (![true, false, "in", "out"].includes(direction as string)) {
        throw refusal(placeholder.pathOf("in_out"), "true, false, in or out", direction);
      }
      const isOutput = direction === true || direction === "out";
      const transforms = transformsFrom(placeholder);
      if (!known.has(variable)) variables.set(variable, { name: variable, value: null });
      places.set(
        name,
        isOutput ? this.#output(variable, placeholder, transforms) : { kind: "input", variable, transforms },
      );
    }
    const parts = partsOf(fields.requiredString("prompt"), places, false);
    return { request_id: this.#submit(session, parts, [...variables.values()], null) };
  }

  /** The paper's get: `{semantic_var_id, criteria, session_id}`. */
  async getOfPaper(call: Call, body: Body): Promise<object> {
    const fields = new Fields(body);
    const session = this.session(call, fields.raw("session_id"));
    const variable = fields.requiredString("semantic_var_id");
    return await this.#valueOf(call, session, variable, fields.string("criteria") ?? null);
  }

  async #valueOf(
    call: Call,
    { hosted }: Session,
    variable: string,
    criteria: string | null,
  ): Promise<object> {
    const refused = hosted.want(variable, criteriaFrom(criteria ?? "latency"));
    if (refused !== null) throw refusalError(refused);
    const { waitMsMax } = this.#deps.programs.limits;
    const value = await valueOfWhenSettled(hosted, variable, this.#deps.exchangeOf(call), waitMsMax);
    return { content: typeof value === "string" ? value : value.join("\n") };
  }

  #submit(
    session: Session,
    parts: readonly PromptPart[],
    variables: ProgramPart["variables"],
    wish: Criteria | null,
  ): number {
    const id = session.calls++;
    this.#add(session, {
      variables,
      nodes: [{ kind: "call", name: `call-${id}`, prompt: { kind: "text", parts } }],
    });
    if (wish !== null) {
      for (const part of parts) if (part.kind === "output") session.hosted.want(part.variable, wish);
    }
    return id;
  }

  #add({ hosted }: Session, part: ProgramPart): void {
    const refused = hosted.add(part);
    if (refused !== null) throw refusalError(refused);
  }

  /** Id of a new variable: the client's name, made unique and prefixed with its session. */
  #newVariable(session: Session, name: string): string {
    const plain = name.replace(/[^\w.-]/g, "_").slice(0, 64);
    return `${session.id}.${session.variables++}.${plain}`;
  }

  #sessionOfVariable(call: Call, variable: string): Session {
    return this.session(call, /^(\d+)\./.exec(variable)?.[1]);
  }

  #output(variable: string, fields: Fields, transforms: readonly TransformStep[]): PromptPart {
    const { model } = this.#deps;
    return {
      kind: "output",
      variable,
      transforms,
      ...drawnAs(samplingFrom(fields.object("sampling_config")), model),
    };
  }
}

/** Translates Parrot's sampling fields. Fields that Parrot's engines ignore are ignored here too. */
function samplingFrom(config: Fields | undefined): Fields {
  if (config === undefined) return new Fields({});
  for (const field of ["n", "best_of"]) config.integer(field, { min: 1, max: 1 });
  return new Fields({
    temperature: config.raw("temperature"),
    top_p: config.raw("top_p"),
    max_tokens: config.raw("max_gen_length"),
    stop: config.raw("stop_str"),
    stop_token_ids: config.raw("stop_token_ids"),
    ignore_eos: config.raw("ignore_tokenizer_eos"),
    presence_penalty: config.raw("presence_penalty"),
    frequency_penalty: config.raw("frequency_penalty"),
    logit_bias: config.raw("logit_bias"),
  });
}

/**
 * Parses `transforms` in the paper's form, one text: the name of a transform, or JSON of one or of a list.
 */
function transformsFrom(fields: Fields): TransformStep[] {
  const given = fields.raw("transforms");
  if (given === undefined || given === "") return [];
  let steps = given;
  if (typeof given === "string" && /^[[{]/.test(given)) {
    try {
      steps = JSON.parse(given);
    } catch {
      throw refusal(fields.pathOf("transforms"), "the name of a transform, or JSON", given);
    }
  }
  return [steps].flat().map((step) => transformOf(step, fields.pathOf("transforms")));
}

function criteriaFrom(given: string): Criteria {
  return criteriaOf(given.toLowerCase(), "criteria");
}

/**
 * Splits a template into parts. `cutsRest`: drops the text behind the last output, as Parrot's client
 * requests.
 */
function partsOf(
  template: string,
  places: ReadonlyMap<string, PromptPart>,
  cutsRest: boolean,
): readonly PromptPart[] {
  const parts = piecesOf(template).map((piece): PromptPart => {
    if (piece.kind === "text") return piece;
    const part = places.get(piece.name);
    if (part === undefined)
      throw badRequest(`the placeholder ${piece.name} stands for nothing`, "parameters");
    return part;
  });
  return cutsRest ? parts.slice(0, parts.findLastIndex(({ kind }) => kind === "output") + 1) : parts;
}
