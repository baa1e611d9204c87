/** Colours of the style sheet, for canvas drawings, which cannot use CSS variables. */

const isDark = matchMedia("(prefers-color-scheme: dark)");

const names = {
  text: "--text",
  muted: "--muted",
  line: "--line",
  alert: "--alert",
  decode: "--accent",
  cached: "--soft",
  free: "--free",
  prompt: "--prompt",
  warm: "--warm",
  draft: "--draft",
} as const;

type Colours = Record<keyof typeof names, string>;

class Palette {
  colours = readColours();

  constructor() {
    isDark.addEventListener("change", () => {
      this.colours = readColours();
    });
  }
}

export const palette = new Palette();

function readColours(): Colours {
  const style = getComputedStyle(document.documentElement);
  const entries = Object.entries(names).map(([name, variable]) => [name, style.getPropertyValue(variable)]);
  return Object.fromEntries(entries) as Colours;
}
