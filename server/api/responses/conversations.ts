/** OpenAI's Conversations: POST /v1/conversations and its related routes. */

import { ApiError, quote } from "../../http/errors.ts";
import type { Call, Route } from "../../http/route.ts";
import { reportIgnored } from "../exchange.ts";
import { Fields, reportable } from "../fields.ts";
import { metadataOf } from "../metadata.ts";
import { pageObject } from "../openai/files.ts";
import { nowSeconds } from "./codec.ts";
import { itemsOf } from "./items.ts";
import { expectItemsFit, type KeptResponses, withItems } from "./kept.ts";
import { pageOf } from "./responses.ts";
import { idsOf } from "./schema.ts";
import { type KeptConversation, newConversationId } from "./store.ts";

type Body = Readonly<Record<string, unknown>>;

/** Reads the body that creates a conversation. Throws 400. */
export function parseConversation(body: Body) {
  const fields = new Fields(body);
  return { metadata: metadataOf(fields) ?? {}, ...addedItems(fields) };
}

/** Reads the body that replaces a conversation's metadata. Throws 400. */
export function parseConversationUpdate(body: Body) {
  const fields = new Fields(body);
  const metadata = metadataOf(fields) ?? {};
  fields.expectAllRead();
  return metadata;
}

/** Reads the body that adds items to a conversation. Throws 400. */
export function parseAddedItems(body: Body) {
  return addedItems(new Fields(body));
}

function addedItems(fields: Fields) {
  const replaced = new Set<string>();
  const key = crypto.randomUUID().replaceAll("-", "");
  const items = itemsOf(fields, "items", idsOf(key), replaced);
  fields.expectAllRead();
  return { items, ignored: [...replaced].map((name) => name.replace(/^input/, "items")) };
}

export function conversationRoutes(responses: KeptResponses): readonly Route[] {
  const route = (method: Route["method"], path: string, handler: Route["handler"]): Route => ({
    method,
    path,
    isPublic: false,
    handler,
  });
  const ofOne = "/v1/conversations/{id}";
  return [
    route("POST", "/v1/conversations", (call) => createConversation(call, responses)),
    route("GET", ofOne, (call) => readConversation(call, responses)),
    route("POST", ofOne, (call) => changeConversation(call, responses)),
    route("DELETE", ofOne, (call) => deleteFromConversation(call, responses)),
  ];
}

async function createConversation(call: Call, responses: KeptResponses): Promise<object> {
  const { metadata, items, ignored } = parseConversation(await call.readWork());
  reportIgnored(call, reportable(ignored));
  const empty: KeptConversation = { id: newConversationId(), createdAt: nowSeconds(), metadata, items: [] };
  return conversationObject(added(call, empty, items, responses));
}

/** GET of a conversation, of its items, or of one of them; null if there is no such route. */
function readConversation({ request, rest, tenant }: Call, responses: KeptResponses): object | null {
  const [id = "", what, itemId, ...more] = rest.split("/");
  if (more.length > 0 || (what !== undefined && what !== "items")) return null;
  const kept = responses.conversation(tenant, id, "id");
  if (what === undefined) return conversationObject(kept);
  if (itemId === undefined) return pageOf(kept.items, new URL(request.url).searchParams);
  return kept.items.find((item) => item.id === itemId) ?? missingItem(kept, itemId);
}

/** POST to a conversation replaces its metadata, POST to its items adds some; null if there is no such route. */
async function changeConversation(call: Call, responses: KeptResponses): Promise<object | null> {
  const [id = "", what, ...more] = call.rest.split("/");
  if (more.length > 0 || (what !== undefined && what !== "items")) return null;
  const body = await call.readWork();
  const kept = responses.conversation(call.tenant, id, "id");
  if (what === undefined) {
    const changed = { ...kept, metadata: parseConversationUpdate(body) };
    responses.keepConversation(call.tenant, changed);
    return conversationObject(changed);
  }
  const { items, ignored } = parseAddedItems(body);
  reportIgnored(call, reportable(ignored));
  const { items: all } = added(call, kept, items, responses);
  return pageObject({ records: all.slice(kept.items.length), hasMore: false }, (item) => item);
}

/** DELETE of a conversation, or of one of its items; null if there is no such route. */
function deleteFromConversation({ rest, tenant }: Call, responses: KeptResponses): object | null {
  const [id = "", what, itemId = "", ...more] = rest.split("/");
  if (more.length > 0 || (what !== undefined && (what !== "items" || itemId === ""))) return null;
  if (what === undefined) {
    responses.deleteConversation(tenant, id);
    return { id, object: "conversation.deleted", deleted: true };
  }
  const kept = responses.conversation(tenant, id, "id");
  const items = kept.items.filter((item) => item.id !== itemId);
  if (items.length === kept.items.length) missingItem(kept, itemId);
  responses.keepConversation(tenant, { ...kept, items });
  return conversationObject(kept);
}

/** Stores the conversation with further items. Throws 400, 404 or 507. */
function added(
  { tenant }: Call,
  kept: KeptConversation,
  given: ReturnType<typeof itemsOf>,
  responses: KeptResponses,
): KeptConversation {
  const items = responses.resolve(tenant, given, { known: kept.items, param: "items" });
  const grown = withItems(kept, items);
  expectItemsFit(grown.items, "items");
  responses.keepConversation(tenant, grown);
  return grown;
}

function conversationObject({ id, createdAt, metadata }: KeptConversation): object {
  return { id, object: "conversation", created_at: createdAt, metadata };
}

function missingItem({ id }: KeptConversation, itemId: string): never {
  const message = `there is no item ${quote(itemId)} in the conversation ${id}`;
  throw new ApiError(404, "not_found_error", message, { param: "item_id" });
}
