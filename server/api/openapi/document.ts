/** OpenAPI 3.1 document of the server's routes: GET /openapi.json. */

import { yieldIfSpent } from "../../../base/time-slice.ts";
import type { Route } from "../../http/route.ts";
import { version } from "../../version.ts";
import { failure } from "./answers.ts";
import { anthropicOperations, llamaOperations, ollamaOperations } from "./dialects.ts";
import { openaiOperations } from "./openai.ts";
import type { Answer, Operation, Operations } from "./operation.ts";
import { programOperations, serverOperations } from "./own.ts";
import { parrotOperations } from "./parrot.ts";
import { Components, type RecordedBody, schemaOfBody } from "./recorded.ts";
import { refTo, type Schema } from "./shapes.ts";

/** Operations by group of the document. */
const groups: readonly (readonly [tag: string, operations: Operations])[] = [
  ["OpenAI", openaiOperations],
  ["Anthropic", anthropicOperations],
  ["Ollama", ollamaOperations],
  ["llama-server", llamaOperations],
  ["Programs", programOperations],
  ["Server", serverOperations],
  ["Parrot", parrotOperations],
];

/** Headers that every route which generates text reads. */
const headers: readonly (readonly [name: string, description: string])[] = [
  ["x-bunting-tbt-ms", "Milliseconds between two tokens at most"],
  ["x-bunting-ttft-ms", "Milliseconds to the first token at most"],
  ["x-bunting-why", "1: the answer tells where its time went"],
  ["x-session-id", "Name of the conversation"],
  ["x-conversation-id", "Name under which the stream can be read again: GET /v1/stream"],
];

/** Adds the route of the OpenAPI document, which describes the given routes and itself. */
export function described(routes: readonly Route[]): readonly Route[] {
  let text: Promise<string> | null = null;
  const route: Route = {
    method: "GET",
    path: "/openapi.json",
    isPublic: true,
    handler: async () => {
      text ??= openapiDocument(all).then((document) => JSON.stringify(document));
      return new Response(await text, { headers: { "content-type": "application/json" } });
    },
  };
  const all = [...routes, route];
  return all;
}

/** Schemas of request bodies by name, so that routes share them. */
class Bodies {
  readonly #schemas: Record<string, Schema> = {};
  readonly #components = new Components();
  readonly #names = new Map<RecordedBody, string>();

  /** A reference to the body's schema. `id`: the operation that asks. */
  ref(body: RecordedBody, id: string): Schema {
    const name = this.#names.get(body) ?? `${id}Body`;
    if (!this.#names.has(body)) {
      this.#names.set(body, name);
      this.#schemas[name] = schemaOfBody(body, this.#components);
    }
    return refTo(name);
  }

  /** All schemas that references name. */
  schemas(): Readonly<Record<string, Schema>> {
    return { ...this.#components.schemas(), ...this.#schemas };
  }
}

/** Generates the document, yielding to other work on this thread. Throws if a route has no operation. */
export async function openapiDocument(routes: readonly Route[]): Promise<object> {
  const paths: Record<string, Record<string, object>> = {};
  const bodies = new Bodies();
  for (const route of routes) {
    const key = `${route.method} ${route.path}`;
    const [tag, operations] = groups.find(([, rows]) => aliased(key) in rows) ?? [];
    if (tag === undefined) throw new Error(`the description of the API lacks ${key}`);
    for (const operation of [operations![aliased(key)]!].flat() as Operation[]) {
      const path = operation.path ?? route.path;
      const place = path.startsWith("/v1") && !route.path.startsWith("/v1") ? path.slice("/v1".length) : path;
      paths[place] ??= {};
      paths[place][route.method.toLowerCase()] = operationObject(operation, { place, tag, route, bodies });
      await yieldIfSpent();
    }
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Bunting",
      version,
      description:
        "Fields beside the described ones are taken too: the answer's header x-bunting-ignored names those without effect.",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "/" }],
    tags: groups.map(([name]) => ({ name })),
    components: {
      schemas: { Failure: failure, ...bodies.schemas() },
      securitySchemes: {
        bearer: { type: "http", scheme: "bearer" },
        header: { type: "apiKey", in: "header", name: "x-api-key" },
      },
    },
    security: [{ bearer: [] }, { header: [] }, {}],
    paths,
  };
}

/** Row that describes a route: OpenAI's routes have names without `/v1` too. */
function aliased(key: string): string {
  const [method, path] = key.split(" ") as [string, string];
  const isKnown = groups.some(([, rows]) => key in rows);
  return isKnown ? key : `${method} /v1${path}`;
}

interface Row {
  readonly place: string;
  readonly tag: string;
  readonly route: Route;
  readonly bodies: Bodies;
}

function operationObject(operation: Operation, { place: path, tag, route, bodies }: Row): object {
  const { summary, body, query = {}, answer } = operation;
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
    name,
    in: "path",
    required: true,
    schema: { type: "string" },
  }));
  const inQuery = Object.entries(query).map(([name, schema]) => ({ name, in: "query", schema }));
  const inHeaders = headers.map(([name, description]) => ({
    name,
    in: "header",
    description,
    schema: { type: "string" },
  }));
  const isGenerating = route.method === "POST" && answer.other !== undefined;
  const camel = path.replace(/\W+(\w)/g, (_, letter: string) => letter.toUpperCase());
  const id = `${route.method.toLowerCase()}${camel.replace(/\W/g, "")}`;
  return {
    tags: [tag],
    summary,
    operationId: id,
    parameters: [...inPath, ...inQuery, ...(isGenerating ? inHeaders : [])],
    ...(body === undefined ? {} : { requestBody: bodyObject(body, id, bodies) }),
    responses: {
      ...Object.fromEntries(
        [answer.status, answer.otherStatus ?? []].flat().map((status) => [status, answerObject(answer)]),
      ),
      ...failures(answer),
    },
    ...(route.isPublic ? { security: [] } : {}),
  };
}

function bodyObject(body: NonNullable<Operation["body"]>, id: string, bodies: Bodies): object {
  if ("form" in body) return { required: true, content: { "multipart/form-data": { schema: body.form } } };
  const content = { schema: bodies.ref(body, id), example: body.examples[0] };
  return { required: true, content: { "application/json": content } };
}

function answerObject({ json, other }: Answer): object {
  const types: [string, object][] = [];
  if (json !== undefined) types.push(["application/json", { schema: json }]);
  if (other !== undefined) types.push([other, { schema: { type: "string" } satisfies Schema }]);
  return { description: "The answer", content: Object.fromEntries(types) };
}

function failures({ status }: Answer): object {
  if (status >= 400) return {};
  const content = { "application/json": { schema: refTo("Failure") } };
  return { default: { description: "A refusal, whose message names field, limit and value", content } };
}
