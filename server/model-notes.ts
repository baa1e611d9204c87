/** Messages about a model's files for the server's start. */
import type { ModelFolder } from "../model/model-folder.ts";
import { templateNotes } from "../text/model-text.ts";
import type { ChatTemplate } from "../text/template.ts";

export function modelNotes(
  { dir, config }: Pick<ModelFolder, "dir" | "config">,
  template: ChatTemplate | null,
): readonly string[] {
  const unheeded = config.generationDefaults.unheeded ?? [];
  const samplingNote = `generation_config.json sets ${unheeded.join(", ")}, which is not heeded`;
  // A model that generates no text needs no users' messages.
  const ofTemplate = config.isHeadless ? [] : templateNotes(dir, template);
  return [...ofTemplate, ...(unheeded.length === 0 ? [] : [samplingNote])];
}
