import type { VNode } from "preact";
import type { Figures as Measured } from "./conversation.ts";

/** Line with a response's figures and a link to its request. */
export function Figures(given: {
  readonly figures: Measured;
  readonly requestId: string | undefined;
}): VNode | null {
  const { figures, requestId } = given;
  const facts = factsOf(figures);
  if (facts.length === 0) return null;
  return (
    <p class="facts">
      {facts.join(" · ")}
      {requestId !== undefined && (
        <>
          {" · "}
          <a href={`#requests/${encodeURIComponent(requestId)}`}>request</a>
        </>
      )}
    </p>
  );
}

function factsOf(figures: Measured): string[] {
  const { completionTokens, tokensPerSecond, firstTokenMs, promptTokens, cachedTokens, finish } = figures;
  const facts: string[] = [];
  if (completionTokens !== null) facts.push(`${completionTokens} tokens`);
  if (tokensPerSecond !== null) facts.push(`${tokensPerSecond.toFixed(1)} tokens/s`);
  if (firstTokenMs !== null) facts.push(`first token after ${(firstTokenMs / 1000).toFixed(2)} s`);
  if (promptTokens > 0)
    facts.push(`${Math.round((100 * cachedTokens) / promptTokens)} % of the prompt cached`);
  if (finish === "stopped") facts.push("stopped");
  if (finish === "length") facts.push("ended at the token limit");
  return facts;
}
