/** A piece of a template: plain text, or the name in {{name}}. */
export type TemplatePiece =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "placeholder"; readonly name: string };

/**
 * Splits a template at its placeholders, `{{name}}` with optional white space inside. Other text between
 * braces, such as JSON in a prompt, stays text. No piece is empty.
 */
export function piecesOf(template: string): TemplatePiece[] {
  const pieces: TemplatePiece[] = [];
  let from = 0;
  for (const { 0: whole, 1: name, index } of template.matchAll(/\{\{\s*([\w.-]{1,128})\s*\}\}/g)) {
    if (index > from) pieces.push({ kind: "text", text: template.slice(from, index) });
    pieces.push({ kind: "placeholder", name: name! });
    from = index + whole.length;
  }
  if (from < template.length) pieces.push({ kind: "text", text: template.slice(from) });
  return pieces;
}
