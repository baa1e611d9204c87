/** Page with a chat on one side and a view of the engines on the other. */
import { ApiKeyForm } from "./api-key.ts";
import { Conversation } from "./conversation.ts";
import { element } from "./dom.ts";
import { History } from "./history.ts";
import { LiveState } from "./live-state.ts";
import { PastList } from "./past-list.ts";
import { onSettings } from "./settings.ts";

const question = element("question", HTMLTextAreaElement);
const send = element("send", HTMLButtonElement);
const stop = element("stop", HTMLButtonElement);
const isWide = matchMedia("(min-width: 60rem)");

const apiKey = new ApiKeyForm(() => live.refresh());
const status = element("status", HTMLParagraphElement);
const live = new LiveState(apiKey, (problem) => {
  send.disabled = problem !== null;
  status.hidden = problem === null;
  status.textContent = problem;
});
const history = new History((isForeign) => {
  if (isForeign) conversation.part();
  past.show(conversation.id);
});
const past = new PastList(history, (chosen) => {
  conversation.open(chosen);
  focusQuestion();
});
const conversation = new Conversation(apiKey, history, {
  onBusy(isBusy) {
    send.hidden = isBusy;
    stop.hidden = !isBusy;
  },
  onUnanswered(text) {
    if (question.value === "") question.value = text;
    fitQuestion();
  },
});

function ask(): void {
  const text = question.value.trim();
  if (text === "" || conversation.isBusy || send.disabled) return;
  question.value = "";
  fitQuestion();
  void conversation.ask(text);
}

/**
 * Returns the focus that vanishing buttons take with them. Touch screens are left out, where focus would open
 * the keyboard.
 */
function focusQuestion(): void {
  if (matchMedia("(pointer: fine)").matches) question.focus();
}

/** Fits the height to the text, up to the limit in the style sheet. */
function fitQuestion(): void {
  question.style.height = "auto";
  question.style.height = `${question.scrollHeight + 2}px`;
}

element("composer", HTMLFormElement).addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
  focusQuestion();
});
question.addEventListener("input", fitQuestion);
question.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  ask();
});
stop.addEventListener("click", () => {
  conversation.stop();
  focusQuestion();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") conversation.stop();
});
onSettings(() => conversation.keep());
element("forget", HTMLButtonElement).addEventListener("click", () => {
  history.forget();
  conversation.clear();
});
element("new", HTMLButtonElement).addEventListener("click", () => {
  conversation.clear();
  focusQuestion();
});

/** Opens the panel if it stands beside the chat; above the chat there is room for one line. */
function fitLive(): void {
  element("live", HTMLDetailsElement).open = isWide.matches;
}
isWide.addEventListener("change", fitLive);
fitLive();
past.show(conversation.id);
focusQuestion();
live.refresh();
