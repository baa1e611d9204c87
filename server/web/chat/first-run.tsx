import type { VNode } from "preact";
import { chat, server } from "../store.ts";

/** Questions that the demo model was trained to answer. */
const samples = [
  "What is a lighthouse?",
  "What is prefix caching?",
  "What is 47 plus 38?",
  "Mia has a red kite. Tom has a blue boat. What colour is Mia's kite?",
  "Tell me a story about a dragon.",
  "List five fruits.",
];

/** Contents of an empty conversation. Introduces the demo model if it is served. */
export function FirstRun(): VNode {
  const privacy = "Nothing you write leaves this server and this browser.";
  if (server.models.value[0] !== "demo") return <p id="empty">Ask something. {privacy}</p>;
  return (
    <section id="first-run" aria-labelledby="first-run-title">
      <h2 id="first-run-title">This is a toy of 5.8 million parameters</h2>
      <p>
        It comes with Bunting so that there is something to try. It knows a few thousand words, adds small
        numbers and reads short texts; on anything else it talks nonsense. Ask it one of these:
      </p>
      <ul class="samples">
        {samples.map((question) => (
          <li key={question}>
            <button
              type="button"
              disabled={server.problem.value !== null}
              onClick={() => void chat.ask(question)}
            >
              {question}
            </button>
          </li>
        ))}
      </ul>
      <p>For a real model, end this server and start one that fetches it:</p>
      <pre class="command">
        <code>bunting serve Qwen/Qwen3-0.6B</code>
      </pre>
      <p class="hint">
        From the source tree: <code>npm start -- Qwen/Qwen3-0.6B</code>. {privacy}
      </p>
    </section>
  );
}
