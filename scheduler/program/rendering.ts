import type { Variable } from "./graph.ts";
import {
  type CallSpec,
  type InputPart,
  type OutputPart,
  type Prompt,
  type PromptPart,
  partsOf,
  type TextPart,
  type Transform,
} from "./spec.ts";

/** Value inserted in a prompt. The tokenizer treats it as plain text: it never yields special tokens. */
export interface ValuePart {
  readonly kind: "value";
  readonly text: string;
}

/** Piece of a prompt whose inputs are known. */
export type RenderedPart = TextPart | ValuePart | OutputPart;

/** Rendered prompt, or an error in one of its values. */
export type Rendered =
  | { readonly kind: "prompt"; readonly prompt: Prompt<RenderedPart> }
  | { readonly kind: "failed"; readonly variable: Variable; readonly message: string };

/** Renders a call's prompt with its values. `read` returns the variable of a name, which must be ready. */
export function render(call: CallSpec, read: (name: string) => Variable, transform: Transform): Rendered {
  const texts = new Map<InputPart, string>();
  for (const part of partsOf(call.prompt)) {
    if (part.kind !== "input") continue;
    const variable = read(part.variable);
    const result = transformed(variable, part, transform);
    if (result.kind === "failed") return { kind: "failed", variable, message: result.message };
    texts.set(part, result.text);
  }
  const place = (part: PromptPart): RenderedPart =>
    part.kind === "input" ? { kind: "value", text: texts.get(part)! } : part;
  return { kind: "prompt", prompt: mapped(call.prompt, place) };
}

/**
 * Renders the known beginning of a call's prompt: up to the first output, unready value, or failed transform.
 */
export function renderHead(
  call: CallSpec,
  read: (name: string) => Variable,
  transform: Transform,
): Prompt<TextPart | ValuePart> {
  const place = (part: PromptPart): TextPart | ValuePart | null => {
    if (part.kind !== "input") return part.kind === "text" ? part : null;
    const variable = read(part.variable);
    if (variable.state !== "ready") return null;
    const result = transformed(variable, part, transform);
    return result.kind === "failed" ? null : { kind: "value", text: result.text };
  };
  if (call.prompt.kind === "text") return { kind: "text", parts: headOf(call.prompt.parts, place) };
  const messages = [];
  for (const { role, parts } of call.prompt.messages) {
    const head = headOf(parts, place);
    messages.push({ role, parts: head });
    if (head.length < parts.length) break;
  }
  return { kind: "chat", messages };
}

function headOf(
  parts: readonly PromptPart[],
  place: (part: PromptPart) => TextPart | ValuePart | null,
): readonly (TextPart | ValuePart)[] {
  const head = [];
  for (const part of parts) {
    const placed = place(part);
    if (placed === null) break;
    head.push(placed);
  }
  return head;
}

function mapped(prompt: Prompt<PromptPart>, place: (part: PromptPart) => RenderedPart): Prompt<RenderedPart> {
  if (prompt.kind === "text") return { kind: "text", parts: prompt.parts.map(place) };
  const messages = prompt.messages.map(({ role, parts }) => ({ role, parts: parts.map(place) }));
  return { kind: "chat", messages };
}

function transformed(
  { name, value }: Variable,
  { transforms }: InputPart,
  transform: Transform,
): { readonly kind: "text"; readonly text: string } | { readonly kind: "failed"; readonly message: string } {
  const result =
    transforms.length === 0 ? { kind: "value" as const, value: value! } : transform(value!, transforms);
  if (result.kind === "failed") return result;
  if (typeof result.value === "string") return { kind: "text", text: result.value };
  const message = `${name} is a list of ${result.value.length} items where a text is read; join it first.`;
  return { kind: "failed", message };
}
