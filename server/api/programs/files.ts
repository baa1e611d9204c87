/** Programs served as models: a folder with one file each, checked when the server starts. */
import { readdirSync, readFileSync } from "node:fs";
import { join, parse } from "node:path";
import { ioReason } from "../../../model/model-error.ts";
import { refusalOf } from "../../../scheduler/program/check.ts";
import { inputsOf, outputsOf, type ProgramPart, programLimits } from "../../../scheduler/program/spec.ts";
import { ConfigError } from "../../config.ts";
import { ApiError, badRequest } from "../../http/errors.ts";
import type { ServedModel } from "../../request/served-model.ts";
import { Fields, fieldsOf } from "../fields.ts";
import { ProgramReader, unsetOf } from "./schema.ts";

/** A program that answers chats. */
export interface ProgramModel {
  /** Model name: the file's name without its extension. */
  readonly name: string;
  /** Variable that receives the user's last message. */
  readonly input: string;
  /** Variable that receives the earlier messages, one per line; null: the program does not read them. */
  readonly history: string | null;
  /** Variable with the answer. */
  readonly output: string;
  /** Builds the graph for one chat. Each invocation parses the program again, and so draws unset seeds anew. */
  part(values: ReadonlyMap<string, string>): ProgramPart;
}

/** All programs of a folder, by name. Throws ConfigError with file and field for an invalid program. */
export function readProgramModels(folder: string, served: ServedModel): ReadonlyMap<string, ProgramModel> {
  const models = new Map<string, ProgramModel>();
  for (const file of filesOf(folder)) {
    const path = join(folder, file);
    const { name } = parse(file);
    if (served.names.includes(name)) throw new ConfigError(`${path}: the model itself has the name ${name}.`);
    if (served.adapters?.has(name)) throw new ConfigError(`${path}: an adapter has the name ${name}.`);
    if (models.has(name)) throw new ConfigError(`${path}: another program has the name ${name}.`);
    try {
      models.set(name, modelOf(name, contentOf(path), served));
    } catch (error) {
      if (!(error instanceof ApiError || error instanceof SyntaxError)) throw error;
      throw new ConfigError(`${path}: ${error.message}`);
    }
  }
  if (models.size === 0)
    throw new ConfigError(`--programs ${folder} has no program: no file ends in .yaml, .yml or .json.`);
  return models;
}

function filesOf(folder: string): string[] {
  try {
    return readdirSync(folder)
      .filter((name) => /\.(ya?ml|json)$/.test(name))
      .sort();
  } catch (error) {
    throw new ConfigError(`--programs ${folder} ${ioReason(error)}.`);
  }
}

function contentOf(path: string): unknown {
  const text = readFileSync(path, "utf8");
  return path.endsWith(".json") ? JSON.parse(text) : Bun.YAML.parse(text);
}

function modelOf(name: string, content: unknown, served: ServedModel): ProgramModel {
  const read = (values: ReadonlyMap<string, string>) => {
    fieldsOf(content, "the program");
    const own = new Fields(content as Record<string, unknown>);
    const input = own.string("input") ?? "input";
    const history = own.string("history") ?? null;
    const part = new ProgramReader(served).part(own);
    const output = own.string("output") ?? soleSink(part);
    own.expectAllRead();
    const given = [input, ...(history === null ? [] : [history])].map((variable) => ({
      name: variable,
      value: values.get(variable) ?? null,
    }));
    const constants = part.variables.filter((variable) => !given.some((one) => one.name === variable.name));
    const unset = unsetOf({ variables: constants, nodes: part.nodes });
    if (unset !== null) throw badRequest(`variables.${unset} has no value, and nothing sets it`);
    return { input, history, output, part: { ...part, variables: [...constants, ...given] } };
  };
  const { input, history, output, part } = read(new Map());
  const refusal = refusalOf(part, {
    scope: { names: new Map(), outer: null },
    nodes: new Map(),
    limits: programLimits,
  });
  if (refusal !== null) throw new ApiError(422, "invalid_request_error", refusal.message);
  if (!part.nodes.flatMap(outputsOf).includes(output)) {
    throw new ApiError(422, "invalid_request_error", `no call writes its output, ${output}`);
  }
  return { name, input, history, output, part: (values) => read(values).part };
}

/** The only variable that a call writes and no call reads. Throws 422 if there is not exactly one. */
function soleSink({ nodes }: ProgramPart): string {
  const read = new Set(nodes.flatMap(inputsOf));
  const sinks = nodes.flatMap(outputsOf).filter((name) => !read.has(name));
  if (sinks.length === 1) return sinks[0]!;
  throw new ApiError(
    422,
    "invalid_request_error",
    `name its output: ${sinks.length} variables are written and not read`,
  );
}
