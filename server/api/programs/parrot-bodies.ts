/** Readers of Parrot's request bodies: the paper's (OSDI 2024, §7), and those of its authors' published client. */

import type { Criteria, OutputPart, TransformStep } from "../../../scheduler/program/spec.ts";
import type { ServedModel } from "../../request/served-model.ts";
import { type FieldKind, Fields, fieldsOf, objectKind, refusal } from "../fields.ts";
import { drawnAs } from "./call.ts";
import { criteriaOf, programRequestLimits, transformOf, transformsOf } from "./reading.ts";

type Body = Readonly<Record<string, unknown>>;

/** Number of a session, as clients send it. */
export type SessionNumber = number | string;

/** A placeholder of a template. */
export interface ParrotPlace {
  readonly name: string;
  /** Id of its variable; null: it gets a new one. */
  readonly variable: string | null;
  /** Value of a new variable; null: none yet. */
  readonly value: string | null;
  readonly transforms: readonly TransformStep[];
  /** Sampling and end conditions of an output; null for an input. */
  readonly drawn: Omit<OutputPart, "kind" | "variable" | "transforms"> | null;
}

export interface ParrotCall {
  readonly session: SessionNumber;
  readonly template: string;
  readonly places: readonly ParrotPlace[];
  /** True drops the text behind the last output. */
  readonly cutsRest: boolean;
  /** Criteria of all outputs; null: they are not awaited yet. */
  readonly criteria: Criteria | null;
}

/** POST /v1/semantic_var */
export function readDeclaration(body: Body): { readonly session: SessionNumber; readonly name: string } {
  const fields = new Fields(body);
  return { session: sessionOf(fields), name: fields.requiredString("var_name") };
}

/** POST /v1/semantic_var/{id}: the new value. */
export function readContent(body: Body): string {
  return new Fields(body).requiredString("content");
}

/**
 * Reads `{semantic_var_id, content, session_id}`, modelled on the paper's two operations, which define no body for
 * setting a variable.
 */
export function readSet(body: Body): {
  readonly session: SessionNumber;
  readonly variable: string;
  readonly content: string;
} {
  const fields = new Fields(body);
  return { session: sessionOf(fields), variable: variableOf(fields), content: readContent(body) };
}

/** The paper's get: `{semantic_var_id, criteria, session_id}`. */
export function readGet(body: Body): {
  readonly session: SessionNumber;
  readonly variable: string;
  readonly criteria: Criteria;
} {
  const fields = new Fields(body);
  const criteria = parrotCriteria(fields.string("criteria") ?? "latency");
  return { session: sessionOf(fields), variable: variableOf(fields), criteria };
}

/** POST /v1/semantic_call: a template and its parameters. */
export function readSemanticCall(body: Body, model: ServedModel): ParrotCall {
  const fields = new Fields(body);
  const places = placesOf(fields, "parameters", (parameter): ParrotPlace => {
    const name = parameter.requiredString("name");
    const isOutput = parameter.boolean("is_output") ?? false;
    const variable = parameter.string("var_id") ?? null;
    return {
      name,
      variable,
      value: isOutput || variable !== null ? null : parameter.requiredString("value"),
      transforms: [],
      drawn: isOutput ? drawnOf(parameter, model) : null,
    };
  });
  const criteria = fields.string("output_criteria");
  return {
    session: sessionOf(fields),
    template: fields.requiredString("template"),
    places,
    cutsRest: fields.boolean("remove_pure_fill") ?? true,
    criteria: criteria === undefined ? null : parrotCriteria(criteria, "output_criteria"),
  };
}

const directions = [true, false, "in", "out"];

/**
 * The paper's submit: `{prompt, placeholders: [{name, in_out, semantic_var_id, transforms}], session_id}`.
 * `in_out` is true or "out" for an output.
 */
export function readSubmit(body: Body, model: ServedModel): ParrotCall {
  const fields = new Fields(body);
  const places = placesOf(fields, "placeholders", (placeholder): ParrotPlace => {
    const name = placeholder.requiredString("name");
    const direction = placeholder.raw("in_out", { enum: directions });
    if (!directions.includes(direction as string))
      throw refusal(placeholder.pathOf("in_out"), "true, false, in or out", direction);
    return {
      name,
      variable: placeholder.string("semantic_var_id") ?? name,
      value: null,
      transforms: transformsFrom(placeholder),
      drawn: direction === true || direction === "out" ? drawnOf(placeholder, model) : null,
    };
  });
  const template = fields.requiredString("prompt");
  return { session: sessionOf(fields), template, places, cutsRest: false, criteria: null };
}

/** Criteria under Parrot's names, which are in capitals. */
export function parrotCriteria(given: string, param = "criteria"): Criteria {
  return criteriaOf(given.toLowerCase(), param);
}

function sessionOf(fields: Fields): SessionNumber {
  const given = fields.raw("session_id", { type: ["integer", "string"] });
  if (typeof given !== "string" && !Number.isInteger(given))
    throw refusal("session_id", "the number of a session", given);
  return given as SessionNumber;
}

function variableOf(fields: Fields): string {
  return fields.requiredString("semantic_var_id");
}

function placesOf(fields: Fields, name: string, read: (place: Fields) => ParrotPlace): ParrotPlace[] {
  const given = fields.list(name, programRequestLimits.placesMax, objectKind) ?? [];
  return given.map((place, index) => read(fieldsOf(place, `${name}[${index}]`)));
}

function drawnOf(place: Fields, model: ServedModel): ParrotPlace["drawn"] {
  const config = place.object("sampling_config") ?? new Fields({}, place.pathOf("sampling_config"));
  for (const field of ["n", "best_of"]) config.integer(field, { min: 1, max: 1 });
  return drawnAs(new SamplingConfig(config), model);
}

/** Parrot's names of sampling fields. Its engines ignore the others, and so does this server. */
const samplingNames: Readonly<Record<string, string>> = {
  temperature: "temperature",
  top_p: "top_p",
  max_tokens: "max_gen_length",
  stop: "stop_str",
  stop_token_ids: "stop_token_ids",
  ignore_eos: "ignore_tokenizer_eos",
  presence_penalty: "presence_penalty",
  frequency_penalty: "frequency_penalty",
  logit_bias: "logit_bias",
};

/** A `sampling_config` whose fields are read under OpenAI's names. */
class SamplingConfig extends Fields {
  readonly #config: Fields;

  constructor(config: Fields) {
    super({}, config.path);
    this.#config = config;
  }

  override pathOf(name: string): string {
    return this.#config.pathOf(samplingNames[name] ?? name);
  }

  override raw(name: string, kind?: FieldKind): unknown {
    return name in samplingNames ? this.#config.raw(samplingNames[name]!, kind) : undefined;
  }

  override taken(name: string): unknown {
    return this.peek(name);
  }

  override peek(name: string): unknown {
    return name in samplingNames ? this.#config.peek(samplingNames[name]!) : undefined;
  }
}

/** Parses `transforms` in the paper's form, one text: the name of a transform, or JSON of one or of a list. */
function transformsFrom(fields: Fields): TransformStep[] {
  const given = fields.raw("transforms", { type: ["string", "object"] });
  if (given === undefined || given === "") return [];
  let steps = given;
  if (typeof given === "string" && /^[[{]/.test(given)) {
    try {
      steps = JSON.parse(given);
    } catch {
      throw refusal(fields.pathOf("transforms"), "the name of a transform, or JSON", given);
    }
  }
  if (!Array.isArray(steps)) return [transformOf(steps, fields.pathOf("transforms"))];
  return transformsOf(new Fields({ transforms: steps }, fields.path), "transforms");
}
