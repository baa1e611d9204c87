/** Formats a call as in the demo model's template. */
export function call(name: string, args: unknown): string {
  return `<tool_call>\n{"name": ${JSON.stringify(name)}, "arguments": ${JSON.stringify(args)}}\n</tool_call>`;
}
