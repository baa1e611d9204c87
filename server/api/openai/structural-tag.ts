/** Structural tags as in vLLM: its older form of structures and triggers, and xgrammar's formats. */
import type { ConstraintSource, Tag, TagFormat } from "../../../grammar/source.ts";
import { type FieldKind, type Fields, fieldsOf, objectKind, refusal, textKind } from "../fields.ts";

const ELEMENTS_MAX = 256;
const DEPTH_MAX = 32;
/** Characters of a delimiter at most. */
const MARK_MAX = 1024;

/** Kind of a format, which may hold formats. */
const formatKind: FieldKind = { ...objectKind, component: "TagFormat" };

/** Constraint of an object whose `type` is "structural_tag". */
export function structuralTag(fields: Fields): ConstraintSource {
  const type = fields.raw("type", { enum: ["structural_tag"] }) ?? "structural_tag";
  if (type !== "structural_tag") throw refusal(fields.pathOf("type"), "structural_tag", type);
  const inner = fields.object("format", formatKind);
  const format = inner === undefined ? olderForm(fields) : formatOf(inner, 0);
  fields.expectAllRead();
  return { kind: "tags", format };
}

function olderForm(fields: Fields): TagFormat {
  const structures = itemsOf(fields, "structures");
  const tags = structures.map((one): Tag => {
    const begin = markOf(one, "begin");
    const content: TagFormat = { kind: "held", to: schemaOf(one.raw("schema") ?? {}) };
    const tag: Tag = { kind: "tag", begin, content, ends: [textOf(one, "end")] };
    one.expectAllRead();
    return tag;
  });
  const triggers = marksOf(fields, "triggers");
  return { kind: "triggered", triggers, tags, atLeastOne: false, stopsAfterFirst: false };
}

function formatOf(fields: Fields, depth: number): TagFormat {
  if (depth > DEPTH_MAX)
    throw refusal(fields.pathOf("type"), `formats nested ${DEPTH_MAX} deep at most`, depth);
  const format = readFormat(fields, depth);
  fields.expectAllRead();
  return format;
}

function readFormat(fields: Fields, depth: number): TagFormat {
  const type = fields.raw("type", { type: "string" });
  switch (type) {
    case "any_text":
      return { kind: "text" };
    case "const_string":
      return { kind: "held", to: { kind: "choice", texts: [fields.requiredString("value")] } };
    case "json_schema":
      return { kind: "held", to: schemaOf(fields.raw("json_schema") ?? {}) };
    case "regex":
      return { kind: "held", to: { kind: "regex", pattern: fields.requiredString("pattern") } };
    case "grammar":
      return { kind: "held", to: { kind: "grammar", text: fields.requiredString("grammar") } };
    case "sequence":
    case "or":
      return {
        kind: type,
        elements: itemsOf(fields, "elements", formatKind).map((element) => formatOf(element, depth + 1)),
      };
    case "tag":
      return tagOf(fields, depth);
    case "triggered_tags":
      return { kind: "triggered", triggers: marksOf(fields, "triggers"), ...countedTags(fields, depth) };
    case "tags_with_separator":
      return { kind: "separated", separator: textOf(fields, "separator"), ...countedTags(fields, depth) };
    default:
      throw refusal(
        fields.pathOf("type"),
        "any_text, const_string, json_schema, regex, grammar, sequence, or, tag, triggered_tags or tags_with_separator",
        type,
      );
  }
}

function countedTags(
  fields: Fields,
  depth: number,
): { readonly tags: readonly Tag[]; readonly atLeastOne: boolean; readonly stopsAfterFirst: boolean } {
  const tags = itemsOf(fields, "tags").map((one) => {
    const type = one.raw("type", { enum: ["tag"] }) ?? "tag";
    if (type !== "tag") throw refusal(one.pathOf("type"), "tag", type);
    const tag = tagOf(one, depth + 1);
    one.expectAllRead();
    return tag;
  });
  return {
    tags,
    atLeastOne: fields.boolean("at_least_one") ?? false,
    stopsAfterFirst: fields.boolean("stop_after_first") ?? false,
  };
}

function tagOf(fields: Fields, depth: number): Tag {
  const content = fields.object("content", formatKind);
  if (content === undefined) throw refusal(fields.pathOf("content"), "an object", undefined);
  const ends = Array.isArray(fields.raw("end", { type: ["string", "array"], items: textKind }))
    ? marksOf(fields, "end")
    : [textOf(fields, "end")];
  return { kind: "tag", begin: textOf(fields, "begin"), content: formatOf(content, depth + 1), ends };
}

function schemaOf(schema: unknown): ConstraintSource {
  return { kind: "schema", schema, layout: "compact" };
}

/** Non-empty list of objects. Throws 400. */
function itemsOf(fields: Fields, name: string, kind: FieldKind = objectKind): Fields[] {
  const given = fields.list(name, ELEMENTS_MAX, kind) ?? [];
  if (given.length === 0) throw refusal(fields.pathOf(name), "a list that is not empty", given);
  return given.map((one, index) => fieldsOf(one, `${fields.pathOf(name)}[${index}]`));
}

/** Non-empty list of non-empty texts. Throws 400. */
function marksOf(fields: Fields, name: string): readonly string[] {
  const given = fields.list(name, ELEMENTS_MAX, textKind) ?? [];
  const isMark = (one: unknown): one is string =>
    typeof one === "string" && one !== "" && one.length <= MARK_MAX;
  if (given.length === 0 || !given.every(isMark)) {
    throw refusal(fields.pathOf(name), `a list of texts of 1 to ${MARK_MAX} characters`, given);
  }
  return given;
}

function markOf(fields: Fields, name: string): string {
  const text = textOf(fields, name);
  if (text === "") throw refusal(fields.pathOf(name), "a text that is not empty", text);
  return text;
}

function textOf(fields: Fields, name: string): string {
  const text = fields.requiredString(name);
  if (text.length > MARK_MAX) throw refusal(fields.pathOf(name), `at most ${MARK_MAX} characters`, text);
  return text;
}
