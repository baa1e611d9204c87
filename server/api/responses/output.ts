import type { Part, TokenEntry } from "../../answer/events.ts";
import type { WholePart } from "../../answer/whole.ts";
import { chatEntry } from "../openai/logprobs.ts";
import { sealedText } from "../sealed.ts";
import { CUSTOM_INPUT } from "./conversation.ts";
import type { Item, ItemStatus, OutputText } from "./items.ts";
import type { WireCall } from "./tools.ts";

/** Emits an event of a stream; the caller adds its sequence number. */
export type Emit = (type: string, fields: object) => void;

export interface OutputRules {
  /** Random part of the ids. */
  readonly key: string;
  /** Call items by the tool name that the model sees. A call of an unlisted name is a function call. */
  readonly wireCalls: ReadonlyMap<string, WireCall>;
  /** True if reasoning items hold an opaque string too. */
  readonly sealsReasoning: boolean;
}

type Kind = "message" | "reasoning" | "function_call" | "custom_tool_call";

const prefixes = { message: "msg", reasoning: "rs", function_call: "fc", custom_tool_call: "ctc" };

/** The unfinished item. */
interface OpenItem {
  readonly kind: Kind;
  readonly id: string;
  /** Index among the items. */
  readonly index: number;
  /** Name of the called tool, and its id if the model made one up; null if the item is no call. */
  readonly called: (Pick<WireCall, "name" | "namespace"> & { readonly call_id?: string }) | null;
  text: string;
  readonly logprobs: object[];
}

/**
 * Items of one answer, built part by part. Its events describe exactly these items: each is added, grows and
 * is done, and `items` holds the items that are done.
 */
export class Output {
  readonly #rules: OutputRules;
  readonly #emit: Emit;
  readonly #items: Item[] = [];
  #open: OpenItem | null = null;
  /** Log probabilities of tokens that have produced no text yet. */
  #heldLogprobs: object[] = [];

  constructor(rules: OutputRules, emit: Emit) {
    this.#rules = rules;
    this.#emit = emit;
  }

  /** The items that are done. */
  get items(): readonly Item[] {
    return this.#items;
  }

  /** Appends parts. `logprobs` belong to the tokens of the parts; null if the request asks for none. */
  write(parts: readonly Part[], logprobs: readonly TokenEntry[] | null): void {
    for (const entry of logprobs ?? []) this.#heldLogprobs.push(chatEntry(entry, false));
    for (const part of parts) this.#write(part);
  }

  /** Ends the output. The unfinished item gets `status`. */
  end(status: ItemStatus): void {
    if (this.#open?.kind === "message" && this.#heldLogprobs.length > 0) this.#writeText(this.#open, "");
    this.#endItem(status);
  }

  #write(part: Part): void {
    switch (part.kind) {
      case "text":
        this.#writeText(this.#openOf("message"), part.text);
        break;
      case "reasoning": {
        const item = this.#openOf("reasoning");
        item.text += part.text;
        this.#emit("response.reasoning_text.delta", { ...contentPlaceOf(item), delta: part.text });
        break;
      }
      case "call":
        this.#beginCall(
          this.#rules.wireCalls.get(part.name) ?? { type: "function_call", name: part.name },
          part.id,
        );
        break;
      case "arguments": {
        const item = this.#open!;
        item.text += part.text;
        // The text is inside JSON: it is sent once it is complete.
        if (item.kind === "custom_tool_call") break;
        this.#emit("response.function_call_arguments.delta", { ...placeOf(item), delta: part.text });
      }
    }
  }

  #writeText(item: OpenItem, text: string): void {
    const logprobs = this.#heldLogprobs;
    this.#heldLogprobs = [];
    item.text += text;
    item.logprobs.push(...logprobs);
    this.#emit("response.output_text.delta", { ...contentPlaceOf(item), delta: text, logprobs });
  }

  #openOf(kind: "message" | "reasoning"): OpenItem {
    return this.#open?.kind === kind ? this.#open : this.#begin(kind, null);
  }

  #beginCall({ type, ...called }: WireCall, id: string | undefined): void {
    this.#begin(type, id === undefined ? called : { ...called, call_id: id });
  }

  #begin(kind: Kind, called: OpenItem["called"]): OpenItem {
    this.#endItem("completed");
    const index = this.#items.length;
    const id = `${prefixes[kind]}_${this.#rules.key}_${index}`;
    const item: OpenItem = { kind, id, index, called, text: "", logprobs: [] };
    this.#open = item;
    this.#emit("response.output_item.added", { output_index: index, item: this.#begun(item) });
    const part = contentPartOf(item);
    if (part !== null) this.#emit("response.content_part.added", { ...contentPlaceOf(item), part });
    return item;
  }

  #endItem(status: ItemStatus): void {
    const item = this.#open;
    if (item === null) return;
    this.#open = null;
    const { called, text, logprobs } = item;
    const done = this.#whole(item, status);
    switch (done.type) {
      case "message":
        this.#emit("response.output_text.done", { ...contentPlaceOf(item), text, logprobs });
        break;
      case "reasoning":
        this.#emit("response.reasoning_text.done", { ...contentPlaceOf(item), text });
        break;
      case "function_call":
        this.#emit("response.function_call_arguments.done", {
          ...placeOf(item),
          name: called!.name,
          arguments: text,
        });
        break;
      case "custom_tool_call":
        this.#emit("response.custom_tool_call_input.delta", { ...placeOf(item), delta: done.input });
        this.#emit("response.custom_tool_call_input.done", { ...placeOf(item), input: done.input });
    }
    const part = contentPartOf(item);
    if (part !== null) this.#emit("response.content_part.done", { ...contentPlaceOf(item), part });
    this.#emit("response.output_item.done", { output_index: item.index, item: done });
    this.#items.push(done);
  }

  /** The item without content. */
  #begun(item: OpenItem): object {
    const { kind } = item;
    const whole = this.#whole(item, "in_progress");
    return kind === "message" || kind === "reasoning" ? { ...whole, content: [] } : whole;
  }

  #whole(item: OpenItem, status: ItemStatus): Item {
    const { kind, id, index, called, text } = item;
    const { key, sealsReasoning } = this.#rules;
    const call = { id, call_id: `call_${key.slice(-24)}_${index}`, ...called!, status };
    switch (kind) {
      case "message":
        return { type: kind, id, role: "assistant", status, content: [outputTextOf(item)] };
      case "reasoning": {
        const sealed = sealsReasoning ? { encrypted_content: sealedText(text) } : {};
        return {
          type: kind,
          id,
          summary: [],
          content: [{ type: "reasoning_text", text }],
          ...sealed,
          status,
        };
      }
      case "function_call":
        return { type: kind, ...call, arguments: text };
      case "custom_tool_call":
        return { type: kind, ...call, input: customInputOf(text) };
    }
  }
}

/** The parts that a stream would have sent for a whole answer. */
export function partsOf(parts: readonly WholePart[]): Part[] {
  return parts.flatMap((part): Part[] => {
    if (part.kind !== "call") return [part];
    const { index, call } = part;
    const { arguments: text, ...called } = call;
    return [
      { kind: "call", index, ...called },
      { kind: "arguments", index, text },
    ];
  });
}

function placeOf({ id, index }: OpenItem): object {
  return { item_id: id, output_index: index };
}

function contentPlaceOf(item: OpenItem): object {
  return { ...placeOf(item), content_index: 0 };
}

/** The one content part of an item; null if it has none. */
function contentPartOf(item: OpenItem): object | null {
  if (item.kind === "message") return outputTextOf(item);
  return item.kind === "reasoning" ? { type: "reasoning_text", text: item.text } : null;
}

function outputTextOf({ text, logprobs }: OpenItem): OutputText {
  return { type: "output_text", text, annotations: [], logprobs: [...logprobs] };
}

/**
 * Input text of a custom tool's call, which is constrained to that shape; of a truncated call, the model's
 * raw text.
 */
function customInputOf(written: string): string {
  try {
    const input = (JSON.parse(written) as Readonly<Record<string, unknown>>)[CUSTOM_INPUT];
    return typeof input === "string" ? input : written;
  } catch {
    return written;
  }
}
