import type { RecordedBody } from "./recorded.ts";
import { count, oneOf, type Schema, shape, text } from "./shapes.ts";

/** Description of one route in the OpenAPI document. */
export interface Operation {
  readonly summary: string;
  /** Path in the document, for a route whose own path ends in a wildcard. */
  readonly path?: string;
  readonly body?: RecordedBody | { readonly form: Schema };
  readonly query?: Readonly<Record<string, Schema>>;
  readonly answer: Answer;
}

export interface Answer {
  readonly status: number;
  /** Further status whose response has the same schema. */
  readonly otherStatus?: number;
  /** JSON of the answer; absent: another media type. */
  readonly json?: Schema;
  /** Media type of a stream, or of an answer that is no JSON. */
  readonly other?: string;
}

/** Operations by row of the table of routes, such as `GET /health`. */
export type Operations = Readonly<Record<string, Operation | readonly Operation[]>>;

export function json(schema: Schema, status = 200): Answer {
  return { status, json: schema };
}

/** JSON, or server-sent events for `stream: true`. */
export function jsonOrEvents(schema: Schema): Answer {
  return { status: 200, json: schema, other: "text/event-stream" };
}

export function media(other: string): Answer {
  return { status: 200, other };
}

/** Parameters of OpenAI's lists. */
export const pageParameters = {
  after: text,
  limit: count,
  order: oneOf("asc", "desc"),
} as const;

export function pageOf(item: Schema): Schema {
  const id = { type: ["string", "null"] };
  return shape({
    object: oneOf("list"),
    data: { type: "array", items: item },
    first_id: id,
    last_id: id,
    has_more: { type: "boolean" },
  });
}

export const deleted = shape({ id: text, object: text, deleted: oneOf(true) });
