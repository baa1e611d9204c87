/**
 * Parrot's own wire formats (OSDI 2024): the bodies of the paper, §7, and the routes of the client that its
 * authors published. A session of Parrot is a program here. Its client sends GETs with a JSON body, which
 * HTTP servers may drop. So a variable's id contains its session, and the criteria of a GET are a query
 * parameter, `latency` by default. Errors other than 401 have status 500 with `error` and `traceback`.
 */
import type { Criteria, ProgramPart, PromptPart, VariableSpec } from "../../../scheduler/program/spec.ts";
import type { CacheSaltFor } from "../../http/auth.ts";
import { ApiError, badRequest, quote } from "../../http/errors.ts";
import type { Call, Route } from "../../http/route.ts";
import type { HostedProgram } from "../../program/hosted.ts";
import type { Programs } from "../../program/programs.ts";
import type { ServedModel } from "../../request/served-model.ts";
import type { Exchange } from "../respond.ts";
import {
  type ParrotCall,
  type ParrotPlace,
  parrotCriteria,
  readContent,
  readDeclaration,
  readGet,
  readSemanticCall,
  readSet,
  readSubmit,
  type SessionNumber,
} from "./parrot-bodies.ts";
import { piecesOf } from "./reading.ts";
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
      api.get(call, call.rest, new URL(call.request.url).searchParams.get("criteria") ?? "latency"),
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
    const owner = { tenant: call.tenant, cacheSalt: this.#deps.cacheSaltFor(call.tenant, ""), adapter: 0 };
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
  session({ tenant }: Call, given: SessionNumber): Session {
    const session = /^\d+$/.test(String(given)) ? this.#sessions.get(Number(given)) : undefined;
    if (session === undefined || session.tenant !== tenant || session.hosted.isEnded) {
      throw badRequest(`there is no session ${quote(given)}`, "session_id");
    }
    this.#deps.programs.touch(session.hosted);
    return session;
  }

  declare(call: Call, body: Body): object {
    const given = readDeclaration(body);
    const session = this.session(call, given.session);
    const name = this.#newVariable(session, given.name);
    this.#add(session, { variables: [{ name, value: null }], nodes: [] });
    return { var_id: name };
  }

  set(call: Call, body: Body): object {
    return this.#set(this.#sessionOfVariable(call, call.rest), call.rest, readContent(body));
  }

  /** The paper's set. */
  setOfPaper(call: Call, body: Body): object {
    const { session, variable, content } = readSet(body);
    return this.#set(this.session(call, session), variable, content);
  }

  #set({ hosted }: Session, variable: string, content: string): object {
    const refused = hosted.set(variable, content);
    if (refused !== null) throw refusalError(refused);
    return {};
  }

  /** Waits for the variable's value. */
  async get(call: Call, variable: string, criteria: string): Promise<object> {
    const session = this.#sessionOfVariable(call, variable);
    return await this.#valueOf(call, session, variable, parrotCriteria(criteria));
  }

  /** POST /v1/semantic_call: a template and its parameters. */
  submit(call: Call, body: Body): object {
    const given = readSemanticCall(body, this.#deps.model);
    const session = this.session(call, given.session);
    const variables: VariableSpec[] = [];
    const info: object[] = [];
    const parts = new Map<string, PromptPart>();
    for (const place of given.places) {
      const { name, value, drawn } = place;
      const variable = place.variable ?? this.#newVariable(session, name);
      if (place.variable === null) variables.push({ name: variable, value });
      parts.set(name, partAt(place, variable));
      info.push({ parameter_name: name, is_output: drawn !== null, var_name: name, var_id: variable });
    }
    return { request_id: this.#submit(session, given, parts, variables), param_info: info };
  }

  /** The paper's submit. A variable that the session lacks is declared. */
  submitOfPaper(call: Call, body: Body): object {
    const given = readSubmit(body, this.#deps.model);
    const session = this.session(call, given.session);
    const { variables: known } = session.hosted.program;
    const named = given.places.map((place) => ({ ...place, variable: place.variable! }));
    const parts = new Map(named.map((place) => [place.name, partAt(place, place.variable)]));
    const fresh = new Set(named.map(({ variable }) => variable).filter((variable) => !known.has(variable)));
    const variables = Array.from(fresh, (name) => ({ name, value: null }));
    return { request_id: this.#submit(session, given, parts, variables) };
  }

  /** The paper's get. */
  async getOfPaper(call: Call, body: Body): Promise<object> {
    const { session, variable, criteria } = readGet(body);
    return await this.#valueOf(call, this.session(call, session), variable, criteria);
  }

  async #valueOf(call: Call, { hosted }: Session, variable: string, criteria: Criteria): Promise<object> {
    const refused = hosted.want(variable, criteria);
    if (refused !== null) throw refusalError(refused);
    const { waitMsMax } = this.#deps.programs.limits;
    const value = await valueOfWhenSettled(hosted, variable, this.#deps.exchangeOf(call), waitMsMax);
    return { content: typeof value === "string" ? value : value.join("\n") };
  }

  #submit(
    session: Session,
    { template, cutsRest, criteria }: ParrotCall,
    places: ReadonlyMap<string, PromptPart>,
    variables: readonly VariableSpec[],
  ): number {
    const parts = partsOf(template, places, cutsRest);
    const id = session.calls++;
    this.#add(session, {
      variables,
      nodes: [{ kind: "call", name: `call-${id}`, prompt: { kind: "text", parts } }],
    });
    if (criteria !== null) {
      for (const part of parts) if (part.kind === "output") session.hosted.want(part.variable, criteria);
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
    return this.session(call, variable.replace(/\..*/s, ""));
  }
}

function partAt({ transforms, drawn }: ParrotPlace, variable: string): PromptPart {
  return drawn === null
    ? { kind: "input", variable, transforms }
    : { kind: "output", variable, transforms, ...drawn };
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
