/** Context in which a block is converted to text. */

import { requestLimits } from "../../request/limits.ts";
import { type Fields, fieldsOf, objectKind, refusal, textOrPartsKind } from "../fields.ts";
import { describe, note, readInstead } from "../past.ts";
import type { Ignored } from "./support.ts";

export interface Reading {
  /** True if the block belongs to the message to answer now. */
  readonly isAsked: boolean;
  readonly ignored: Ignored;
}

/**
 * Text of a block. `place` names the block if it cannot be read. Throws 400 for non-text content in the
 * message to answer.
 */
export function textOf(block: Fields, place: string, reading: Reading): string {
  const type = block.raw("type", { type: "string" });
  switch (type) {
    case "text":
      return block.requiredString("text");
    case "document":
      return documentText(block, place, reading);
    case "search_result": {
      const { title, source } = { title: block.string("title"), source: block.raw("source") };
      const head = [title, source].filter((text) => typeof text === "string");
      return [...head, ...textsIn(block, "content", place, reading)].join("\n");
    }
    case "compaction": {
      const summary = block.string("content");
      if (summary !== undefined) return summary;
      note(reading.ignored, `${place}.${type}`);
      return describe(type, block.all());
    }
    case "image":
    case "container_upload":
      block.raw("source");
      block.raw("file_id");
      return readInstead(block, type, place, reading);
    default:
      if (typeof type !== "string") throw refusal(block.pathOf("type"), "a string", type);
      if (reading.isAsked) return readInstead(block, type, place, reading);
      note(reading.ignored, `${place}.${type}`);
      return describe(type, block.all());
  }
}

/** A text document, with its title and context before it. */
function documentText(block: Fields, place: string, reading: Reading): string {
  const source = block.object("source");
  const head = [block.string("title"), block.string("context")].filter((text) => text !== undefined);
  block.raw("citations"); // asks for citations, which this server does not write
  const type = source?.raw("type", { type: "string" });
  if (source !== undefined && type === "text") return [...head, source.requiredString("data")].join("\n");
  if (source !== undefined && type === "content")
    return [...head, ...textsIn(source, "content", place, reading)].join("\n");
  return [...head, readInstead(block, "document", place, reading)].join("\n");
}

function textsIn(fields: Fields, name: string, place: string, reading: Reading): string[] {
  const content = fields.raw(name, textOrPartsKind);
  if (typeof content === "string") return [content];
  const path = fields.pathOf(name);
  return (fields.list(name, requestLimits.contentPartsMax, objectKind) ?? []).map((block, index) =>
    textOf(fieldsOf(block, `${path}[${index}]`), place, reading),
  );
}
