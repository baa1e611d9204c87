/** Names that clients give their conversations, by which sessions are distinguished (scheduler/session/). */
import { noNames, type SessionNames } from "../../scheduler/session/session-table.ts";
import type { Fields } from "./fields.ts";

/** Longest name in characters; a longer one is cut. */
const NAME_CHARACTERS = 256;

/** Headers that name a conversation: any client's, Codex's and Claude Code's. */
export const sessionHeaders = ["x-session-id", "session_id", "x-claude-code-session-id"] as const;

/** Name of the conversation in a request's headers; null: none. */
export function sessionHeaderOf(headers: Headers): string | null {
  for (const name of sessionHeaders) {
    const value = headers.get(name)?.trim() ?? "";
    if (value !== "") return value.slice(0, NAME_CHARACTERS);
  }
  return null;
}

/** Names of session and user in a request's body; absent if there are none. Leaves invalid values unread. */
export function namesIn(fields: Fields): { readonly names?: SessionNames } {
  const user = userIdIn(fields);
  const session = nameIn(fields, "session_id") ?? nameIn(fields, "prompt_cache_key") ?? user.session;
  const person = nameIn(fields, "safety_identifier") ?? nameIn(fields, "user") ?? user.person;
  return session === null && person === null ? {} : { names: { session, person } };
}

/** Names of a body, in which a header's session name replaces the body's; `header` null: none. */
export function namesWith(header: string | null, names: SessionNames = noNames): SessionNames {
  return header === null ? names : { ...names, session: header };
}

function nameIn(fields: Fields, field: string): string | null {
  const value = fields.peek(field);
  if (typeof value !== "string" || value === "") return null;
  return fields.string(field)!.slice(0, NAME_CHARACTERS);
}

/** Reads Anthropic's `metadata.user_id`. Claude Code's has a session id: in JSON, or after the last `_session_`. */
function userIdIn(fields: Fields): SessionNames {
  const metadata = fields.peek("metadata");
  if (typeof metadata !== "object" || metadata === null) return noNames;
  const { user_id: id, ...others } = metadata as Readonly<Record<string, unknown>>;
  if (typeof id !== "string" || id === "") return noNames;
  if (Object.keys(others).length === 0) fields.raw("metadata");
  const [person, session] = partsOf(id);
  return {
    person: person.slice(0, NAME_CHARACTERS),
    session: session === null ? null : session.slice(0, NAME_CHARACTERS),
  };
}

function partsOf(id: string): readonly [person: string, session: string | null] {
  const at = id.lastIndexOf("_session_");
  if (at >= 0) return [id.slice(0, at), id.slice(at + "_session_".length)];
  if (!id.startsWith("{")) return [id, null];
  try {
    const { session_id: session, ...person } = JSON.parse(id) as Readonly<Record<string, unknown>>;
    return [JSON.stringify(person), typeof session === "string" ? session : null];
  } catch {
    return [id, null];
  }
}
