/** What of a conversation a model of text cannot read: replaced by a text where it is past, refused where it is asked about. */
import { badRequest } from "../http/errors.ts";
import { type Fields, tellable } from "./fields.ts";

/** Kinds of content by the types of their parts, on every wire format. */
const kinds: Readonly<Record<string, string>> = {
  image: "image",
  image_url: "image",
  input_image: "image",
  computer_screenshot: "image",
  audio: "audio",
  audio_url: "audio",
  input_audio: "audio",
  video: "video",
  video_url: "video",
  input_video: "video",
  file: "file",
  input_file: "file",
  document: "file",
  container_upload: "file",
};

/** The text in place of content that is no text. */
export function insteadOf(type: string): string {
  const kind = kinds[type];
  return kind === undefined ? `[${type}: not read by this server]` : `[${kind}: this model reads text only]`;
}

/** How content is read that is no text. */
export interface Reading {
  /** What it is part of is asked about now. */
  readonly isAsked: boolean;
  /** Fields that are read otherwise than they were sent. */
  readonly ignored: Set<string>;
}

/** The text in place of a part, which is named as `place`. Throws 400 for one that is asked about. */
export function readInstead(
  part: Fields,
  type: string,
  place: string,
  { isAsked, ignored }: Reading,
): string {
  const kind = kinds[type];
  const path = part.pathOf("type");
  if (isAsked)
    throw badRequest(
      kind === undefined
        ? `${path}: content of the type ${JSON.stringify(type.slice(0, 64))} is not known here, as this model reads text only`
        : `${path}: this model reads text only, but content of the type ${JSON.stringify(type)} was given`,
      path,
    );
  note(ignored, `${place}.${type}`);
  return insteadOf(type);
}

/** Notes a name, if it may stand in a header. */
export function note(ignored: Set<string>, name: string): void {
  for (const one of tellable([name])) ignored.add(one);
}

/**
 * Where what is asked about now begins, by the roles of messages: behind the last answer. Where results of calls stand there, the
 * assistant is at work, and nothing there is asked about anew. An assistant's message at the end is to be gone on with.
 */
export function askedFrom(roles: readonly unknown[]): number {
  const end = roles.findLastIndex((role) => role !== "assistant") + 1;
  const from = roles.slice(0, end).lastIndexOf("assistant") + 1;
  return roles.slice(from, end).some((role) => role === "tool" || role === "function") ? roles.length : from;
}

/**
 * What stands in place of an item or a block of another vendor's own tools: its type, and what it says in JSON, of which long texts
 * are cut.
 */
export function describe(type: string, fields: Readonly<Record<string, unknown>>): string {
  const json = JSON.stringify(fields, (name, value: unknown) => {
    if (untold.includes(name)) return undefined;
    return typeof value === "string" && value.length > textMax ? `${value.slice(0, textMax)}…` : value;
  });
  return json === "{}" ? `[${type}]` : `[${type}: ${json.slice(0, jsonMax)}]`;
}

const untold = ["type", "id", "status", "encrypted_content", "cache_control"];
const textMax = 1000;
const jsonMax = 10_000;
