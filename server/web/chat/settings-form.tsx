import type { VNode } from "preact";
import { chat, server } from "../store.ts";
import { type ChatSettings, type NumberField, numberFields } from "./settings.ts";

const thinkingChoices = [
  ["", "Model's own"],
  ["off", "Off"],
  ["on", "On"],
  ["low", "Low effort"],
  ["medium", "Medium effort"],
  ["high", "High effort"],
] as const;

/** Settings of the conversation on screen. */
export function SettingsForm(): VNode {
  const { settings } = chat.conversation;
  const models = server.models.value;
  return (
    <details id="settings">
      <summary>Settings{inUse(settings)}</summary>
      <div class="card fields">
        <label class="field">
          Model
          <select
            id="set-model"
            value={settings.model}
            onChange={({ currentTarget }) => chat.set({ model: currentTarget.value })}
          >
            <option value="">{models[0] ?? "The server's own"}</option>
            {models.slice(1).map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <TextField name="system" label="System prompt" placeholder="None" />
        {numberFields.map((field) => (
          <NumberInput key={field.name} field={field} />
        ))}
        <label class="field">
          Thinking
          <select
            id="set-thinking"
            value={settings.thinking}
            onChange={({ currentTarget }) => chat.set({ thinking: currentTarget.value })}
          >
            {thinkingChoices.map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <TextField name="stop" label="Stop strings, one a line" placeholder="None" />
        <TextField
          name="schema"
          label="JSON Schema of the answer"
          placeholder={'{"type": "object", …}'}
          isCode
        />
        <TextField
          name="tools"
          label="Tools, as OpenAI's list"
          placeholder={'[{"type": "function", "function": {"name": …, "parameters": …}}]'}
          isCode
        />
      </div>
    </details>
  );
}

function TextField(given: {
  readonly name: "system" | "stop" | "schema" | "tools";
  readonly label: string;
  readonly placeholder: string;
  readonly isCode?: boolean;
}): VNode {
  const { name, label, placeholder, isCode = false } = given;
  return (
    <label class="field wide">
      {label}
      <textarea
        id={`set-${name}`}
        rows={2}
        class={isCode ? "code" : undefined}
        spellcheck={!isCode}
        placeholder={placeholder}
        value={chat.conversation.settings[name]}
        onChange={({ currentTarget }) => chat.set({ [name]: currentTarget.value })}
      />
    </label>
  );
}

function NumberInput({ field }: { readonly field: NumberField }): VNode {
  const { name, label, min, max, isWhole = false } = field;
  const { numbers } = chat.conversation.settings;
  return (
    <label class="field">
      {label}
      <input
        id={`set-${name}`}
        type="number"
        min={min}
        max={max}
        step={isWhole ? 1 : "any"}
        placeholder="The server's default"
        value={numbers[name] ?? ""}
        onChange={({ currentTarget }) => chat.set({ numbers: { ...numbers, [name]: currentTarget.value } })}
      />
    </label>
  );
}

/** Number of settings that are not the defaults. */
function inUse({ numbers, ...texts }: ChatSettings): string {
  const count = [...Object.values(numbers), ...Object.values(texts)].filter((value) => value !== "").length;
  return count === 0 ? "" : ` (${count} changed)`;
}
