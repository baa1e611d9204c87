/**
 * Parser of programs: JSON of unknown content in, a part of a graph out. The graph checks whether names fit
 * together.
 */

import { atOnce } from "../../../base/time-slice.ts";
import type { AdapterId } from "../../../scheduler/core.ts";
import {
  type Body,
  type Criteria,
  type NodeSpec,
  outputsOf,
  type ProgramPart,
  type Test,
  type Value,
  type VariableSpec,
} from "../../../scheduler/program/spec.ts";
import { checked } from "../../../scheduler/program/transforms/value.ts";
import { badRequest, quote } from "../../http/errors.ts";
import { adapterOf, type ServedModel } from "../../request/served-model.ts";
import { type FieldKind, type Fields, fieldsOf, objectKind, refusal, textKind } from "../fields.ts";
import { cacheSaltOf } from "../openai/sampling.ts";
import { modelOf } from "../openai/schema.ts";
import { callOf } from "./call.ts";
import { criteriaOf, programRequestLimits, Reading, transformOf, transformsOf } from "./reading.ts";

/** POST /v1/programs */
export interface ProgramRequest {
  readonly part: ProgramPart;
  /** Criteria by awaited variable; null: the variables that calls write and no call reads, with latency. */
  readonly awaited: ReadonlyMap<string, Criteria> | null;
  readonly cacheSalt: string;
  readonly adapter: AdapterId;
  readonly stream: boolean;
  readonly explain: boolean;
  /**
   * True if the program ends when its client disconnects or all awaited values have settled; else it stays open
   * like a session.
   */
  readonly cancelOnDisconnect: boolean;
}

/**
 * Name of a variable that has no value and no writer, so that a client must set it; null if there is none.
 */
export function unsetOf({ variables, nodes }: ProgramPart): string | null {
  const written = new Set(nodes.flatMap(outputsOf));
  return variables.find(({ name, value }) => value === null && !written.has(name))?.name ?? null;
}

/**
 * Reads parts of a graph for one model, call by call. Calls without names get numbers from `callsBefore` on.
 */
export class ProgramReader {
  readonly #reading: Reading;
  #calls: number;

  constructor(served: ServedModel, callsBefore = 0) {
    this.#reading = new Reading(served);
    this.#calls = callsBefore;
  }

  *request(fields: Fields): Generator<void, ProgramRequest> {
    const settings = this.session(fields);
    const part = yield* this.partInSteps(fields);
    const stream = fields.boolean("stream") ?? false;
    const unset = unsetOf(part);
    if (unset !== null && !stream) {
      throw badRequest(
        `variables.${unset} has no value, and nobody could set it: only a stream tells the program's id before its end`,
        `variables.${unset}`,
      );
    }
    const request = {
      ...settings,
      part,
      awaited: awaitedOf(fields),
      stream,
      explain: fields.boolean("explain") ?? false,
      cancelOnDisconnect: fields.boolean("cancel_on_disconnect") ?? true,
    };
    fields.expectAllRead();
    return request;
  }

  /** Settings shared by all calls of a program. */
  session(fields: Fields): Pick<ProgramRequest, "cacheSalt" | "adapter"> {
    const { served } = this.#reading;
    return { adapter: adapterOf(modelOf(fields, served), served), cacheSalt: cacheSaltOf(fields) };
  }

  /** Reads `variables` and `calls`. */
  part(fields: Fields): ProgramPart {
    return atOnce(this.partInSteps(fields));
  }

  *partInSteps(fields: Fields): Generator<void, ProgramPart> {
    return { variables: variablesOf(fields), nodes: yield* this.#nodes(fields, "calls") };
  }

  /** Reads one call, or one of the nodes that run calls. */
  *node(fields: Fields): Generator<void, NodeSpec> {
    const name = fields.string("name") ?? `call-${this.#calls++}`;
    const node = yield* this.#nodeOf(fields, name);
    fields.expectAllRead();
    return node;
  }

  *#nodes(fields: Fields, field: string): Generator<void, NodeSpec[]> {
    const list = fields.list(field, programRequestLimits.callsMax, callKind) ?? [];
    const nodes: NodeSpec[] = [];
    for (const [index, item] of list.entries()) {
      nodes.push(yield* this.node(fieldsOf(item, `${fields.pathOf(field)}[${index}]`)));
      yield;
    }
    return nodes;
  }

  *#nodeOf(fields: Fields, name: string): Generator<void, NodeSpec> {
    const kinds = ["map", "reduce", "choose", "repeat"].filter((kind) => fields.has(kind));
    if (kinds.length > 1)
      throw badRequest(`${fields.pathOf(kinds[1]!)}: a call is one of ${kinds.join(" and ")}`);
    switch (kinds[0]) {
      case "map":
        return {
          kind: "map",
          name,
          over: fields.requiredString("map"),
          item: fields.string("item") ?? "item",
          body: yield* this.#body(fields),
          output: fields.requiredString("output"),
          concurrencyMax: fields.integer("concurrency", { min: 1, max: 1024 }) ?? 1024,
        };
      case "reduce":
        return {
          kind: "reduce",
          name,
          over: fields.requiredString("reduce"),
          item: fields.string("item") ?? "item",
          initial: fields.requiredString("initial"),
          accumulator: fields.requiredString("accumulator"),
          body: yield* this.#body(fields),
          output: fields.requiredString("output"),
        };
      case "choose": {
        const otherwise = fields.object("otherwise");
        return {
          kind: "choose",
          name,
          on: fields.requiredString("choose"),
          cases: yield* this.#cases(fields),
          otherwise: otherwise === undefined ? null : yield* this.#wholeBody(otherwise),
          output: fields.requiredString("output"),
        };
      }
      case "repeat":
        return {
          kind: "repeat",
          name,
          initial: fields.requiredString("repeat"),
          state: fields.requiredString("state"),
          body: yield* this.#body(fields),
          until: this.#until(fields),
          countMax: fields.integer("count", { min: 1, max: 1024 }) ?? 8,
          output: fields.requiredString("output"),
        };
      default:
        return callOf(fields, name, this.#reading);
    }
  }

  /** Reads `calls` and `result`. */
  *#body(fields: Fields): Generator<void, Body> {
    return { nodes: yield* this.#nodes(fields, "calls"), result: fields.requiredString("result") };
  }

  *#wholeBody(fields: Fields): Generator<void, Body> {
    const body = yield* this.#body(fields);
    fields.expectAllRead();
    return body;
  }

  *#cases(fields: Fields): Generator<void, { readonly test: Test; readonly body: Body }[]> {
    const cases = fields.list("cases", programRequestLimits.casesMax, objectKind);
    if (cases === undefined || cases.length === 0)
      throw refusal(fields.pathOf("cases"), "a list of cases", cases);
    const read: { readonly test: Test; readonly body: Body }[] = [];
    for (const [index, given] of cases.entries()) {
      const one = fieldsOf(given, `${fields.pathOf("cases")}[${index}]`);
      const test = testOf(one);
      read.push({ test, body: yield* this.#wholeBody(one) });
    }
    return read;
  }

  #until(fields: Fields): Test {
    const until = fields.object("until");
    if (until === undefined) throw refusal(fields.pathOf("until"), "an object with a test", undefined);
    const test = testOf(until);
    until.expectAllRead();
    return test;
  }
}

/** Kind of a call, which may hold calls. */
const callKind: FieldKind = { ...objectKind, component: "ProgramCall" };

/** Reads a test: `equals`, `contains`, `matches` a pattern, or `passes` transforms. */
function testOf(fields: Fields): Test {
  const given = ["equals", "contains", "matches", "passes"].filter((kind) => fields.has(kind));
  const [kind] = given;
  if (kind === undefined || given.length > 1) {
    throw badRequest(`${fields.pathOf("equals")}: give one of equals, contains, matches and passes`);
  }
  if (kind === "passes") return { kind, transforms: transformsOf(fields, "passes") };
  const text = fields.requiredString(kind);
  if (kind !== "matches") return { kind: kind as "equals" | "contains", text };
  return { kind: "passes", transforms: [transformOf({ regex: text }, fields.pathOf("matches"))] };
}

/** Reads `variables`, an object of names and values; a null value is set later by the client. */
function variablesOf(fields: Fields): VariableSpec[] {
  const values = { ...valueKind, type: [valueKind.type!, "null"].flat() };
  const entries = fields.entries("variables", programRequestLimits.variablesMax, values) ?? [];
  return entries.map(([name, value]) => ({
    name,
    value: value === null ? null : valueFrom(value, `${fields.pathOf("variables")}.${quote(name)}`),
  }));
}

/** Kind of a field that holds the value of a variable. */
export const valueKind: FieldKind = { type: ["string", "array"], items: textKind };

/** A text or a list of texts. Throws 400 if it exceeds the limits of a value. */
export function valueFrom(given: unknown, path: string): Value {
  const isValue =
    typeof given === "string" || (Array.isArray(given) && given.every((item) => typeof item === "string"));
  if (!isValue) throw refusal(path, "a string or an array of strings", given);
  const result = checked(given as Value);
  if (result.kind === "failed") throw badRequest(`${path} is ${result.message}`, path);
  return result.value;
}

/** Reads `await`: a name, a list of names, or an object of names and criteria. */
function awaitedOf(fields: Fields): ReadonlyMap<string, Criteria> | null {
  const given = fields.raw("await", {
    type: ["string", "array", "object"],
    items: textKind,
    values: textKind,
  });
  if (given === undefined) return null;
  const path = fields.pathOf("await");
  const entries: readonly (readonly [string, unknown])[] =
    typeof given === "string"
      ? [[given, "latency"]]
      : Array.isArray(given)
        ? fields.texts("await", programRequestLimits.variablesMax)!.map((name) => [name, "latency"])
        : (fields.entries("await", programRequestLimits.variablesMax, textKind) ?? []);
  if (entries.length === 0) throw refusal(path, "the names of one variable or more", given);
  return new Map(entries.map(([name, criteria]) => [name, criteriaOf(criteria, `${path}.${quote(name)}`)]));
}
