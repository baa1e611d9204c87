/** Fields that hold a model's thoughts. Servers differ in the name, and clients in the one that they read. */
export const reasoningFields = ["both", "reasoning_content", "reasoning"] as const;
export type ReasoningField = (typeof reasoningFields)[number];

/** A text of thoughts in its fields. */
export function reasoningJson(text: string, field: ReasoningField): object {
  return field === "both" ? { reasoning_content: text, reasoning: text } : { [field]: text };
}
