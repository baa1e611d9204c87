/**
 * Content that a text model cannot read: replaced by a text in past messages, refused in the message to
 * answer.
 */
import { badRequest } from "../http/errors.ts";
import { type Fields, reportable } from "./fields.ts";

/** Kind of content by the type of its part, on every wire format. */
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

/** Placeholder text for non-text content. */
export function insteadOf(type: string): string {
  const kind = kinds[type];
  return kind === undefined ? `[${type}: not read by this server]` : `[${kind}: this model reads text only]`;
}

/** Context for reading non-text content. */
export interface Reading {
  /** True if the content belongs to the message to answer now. */
  readonly isAsked: boolean;
  /** Names of fields that the server reads differently from what the client sent. */
  readonly ignored: Set<string>;
}

/**
 * Placeholder text for a part. Adds `place` and the type to `ignored`. Throws 400 if the part belongs to the
 * message to answer.
 */
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

/** Adds the name if it is safe to put in a header. */
export function note(ignored: Set<string>, name: string): void {
  for (const one of reportable([name])) ignored.add(one);
}

/**
 * Index of the first message to answer now, by the messages' roles: the one after the last answer. Tool results
 * there belong to a turn in progress, so no message is new. An assistant's message at the end is a prefix to
 * continue.
 */
export function askedFrom(roles: readonly unknown[]): number {
  const end = roles.findLastIndex((role) => role !== "assistant") + 1;
  const from = roles.slice(0, end).lastIndexOf("assistant") + 1;
  return roles.slice(from, end).some((role) => role === "tool" || role === "function") ? roles.length : from;
}

/**
 * Placeholder for an item or block of another vendor's own tools: its type and its JSON, with long texts cut.
 */
export function describe(type: string, fields: Readonly<Record<string, unknown>>): string {
  const json = JSON.stringify(fields, (name, value: unknown) => {
    if (unreported.includes(name)) return undefined;
    return typeof value === "string" && value.length > textMax ? `${value.slice(0, textMax)}…` : value;
  });
  return json === "{}" ? `[${type}]` : `[${type}: ${json.slice(0, jsonMax)}]`;
}

const unreported = ["type", "id", "status", "encrypted_content", "cache_control"];
const textMax = 1000;
const jsonMax = 10_000;
