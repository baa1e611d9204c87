import { ConstraintError } from "../error.ts";
import type { Automaton, Regex, Regexes } from "../regex/regexes.ts";

/**
 * Sets of numbers as sets of decimal texts ("-12.50"), with optional trailing zeros and without exponents. A
 * set contains all texts of a number or none, so that intersections and complements are those of numbers.
 */
export class Numbers {
  /** All plain decimals. */
  readonly all: Regex;
  /** Decimals without a fraction, such as "2" and "2.0". */
  readonly integers: Regex;
  /** Spellings of integers. */
  readonly integerTexts: Regex;
  /** Spellings of numbers without conditions: also exponents, within the range of a double. */
  readonly freeTexts: Regex;
  /** Texts with few enough digits that different numbers are different doubles. */
  readonly exactTexts: Regex;
  /** Subset of `exactTexts` with one text per number. */
  readonly distinctTexts: Regex;
  readonly #regexes: Regexes;
  /** Numbers without a sign, and the zeros among them. */
  readonly #magnitudes: Regex;
  readonly #zero: Regex;
  readonly #digit: Regex;
  readonly #zeros: Regex;

  constructor(regexes: Regexes) {
    this.#regexes = regexes;
    const digit = regexes.bytes([48, 57]);
    this.#digit = digit;
    this.#zeros = regexes.star(this.#digits(0, 0));
    const whole = this.#whole();
    const fraction = regexes.cat(this.#text("."), regexes.repeat(digit, 1, Number.POSITIVE_INFINITY));
    const sign = regexes.optional(this.#text("-"));
    this.#magnitudes = regexes.cat(whole, regexes.optional(fraction));
    this.#zero = regexes.cat(this.#text("0"), this.#zeroFraction());
    this.all = regexes.cat(sign, this.#magnitudes);
    this.integers = regexes.cat(sign, whole, this.#zeroFraction());
    this.integerTexts = regexes.cat(
      sign,
      regexes.alt([this.#text("0"), regexes.cat(this.#digits(1, 9), regexes.repeat(digit, 0, 18))]),
    );
    const shortFraction = regexes.cat(this.#text("."), regexes.repeat(digit, 1, 20));
    const exponent = regexes.cat(
      regexes.bytes([69, 69], [101, 101]),
      regexes.optional(regexes.bytes([43, 43], [45, 45])),
      regexes.repeat(digit, 1, 2),
    );
    const shortWhole = regexes.alt([
      this.#text("0"),
      regexes.cat(this.#digits(1, 9), regexes.repeat(digit, 0, 20)),
    ]);
    this.freeTexts = regexes.cat(
      sign,
      shortWhole,
      regexes.optional(shortFraction),
      regexes.optional(exponent),
    );
    const dot = regexes.optional(this.#text("."));
    this.exactTexts = regexes.cat(sign, regexes.repeat(regexes.cat(digit, dot), 1, 15));
    const shortest = regexes.cat(this.#text("."), regexes.star(digit), this.#digits(1, 9));
    this.distinctTexts = regexes.and([
      this.exactTexts,
      regexes.cat(sign, whole, regexes.optional(shortest)),
      regexes.not(this.#text("-0")),
    ]);
  }

  /** Spelling of a fixed number: without an exponent. */
  textOf(value: number): Uint8Array {
    const { whole, fraction } = decimalOf(Math.abs(value));
    const text = fraction === "" ? whole : `${whole}.${fraction}`;
    return new TextEncoder().encode(value < 0 ? `-${text}` : text);
  }

  /** Set of one number. */
  equal(value: number): Regex {
    return this.#regexes.and([this.atLeast(value, false), this.atMost(value, false)]);
  }

  /** Set of numbers ≥ value, or > value. */
  atLeast(value: number, isExclusive: boolean): Regex {
    const regexes = this.#regexes;
    if (value === 0 && !isExclusive)
      return regexes.alt([this.#magnitudes, regexes.cat(this.#text("-"), this.#zero)]);
    return regexes.and([this.all, regexes.not(this.atMost(value, !isExclusive))]);
  }

  /** Set of numbers ≤ value, or < value. */
  atMost(value: number, isExclusive: boolean): Regex {
    const regexes = this.#regexes;
    const magnitude = decimalOf(Math.abs(value));
    const minus = this.#text("-");
    if (value > 0) {
      const below = this.#magnitudeAtMost(magnitude, isExclusive);
      return regexes.alt([below, regexes.cat(minus, this.#magnitudes)]);
    }
    if (value === 0) {
      const negative = regexes.cat(minus, regexes.and([this.#magnitudes, regexes.not(this.#zero)]));
      return isExclusive ? negative : regexes.alt([this.#zero, regexes.cat(minus, this.#magnitudes)]);
    }
    const above = regexes.and([
      this.#magnitudes,
      regexes.not(this.#magnitudeAtMost(magnitude, !isExclusive)),
    ]);
    return regexes.cat(minus, above);
  }

  /**
   * Set of whole multiples of a positive number. Throws ConstraintError if its automaton has too many states.
   */
  multipleOf(value: number): Regex {
    const { whole, fraction } = decimalOf(value);
    const places = fraction.length;
    const divisor = Number(whole + fraction);
    if (!Number.isSafeInteger(divisor) || divisor > MULTIPLES_MAX || places > 12)
      throw new ConstraintError(`multipleOf ${value} has too many digits`);
    return this.#regexes.and([this.all, this.#regexes.automaton(multiplesAutomaton(divisor, places))]);
  }

  /** Texts without sign of numbers ≤, or <, the magnitude. */
  #magnitudeAtMost({ whole, fraction }: Decimal, isExclusive: boolean): Regex {
    const regexes = this.#regexes;
    const anyFraction = regexes.optional(
      regexes.cat(this.#text("."), regexes.repeat(this.#digit, 1, Number.POSITIVE_INFINITY)),
    );
    const parts: Regex[] = [];
    // Fewer digits, or a smaller digit at the first difference.
    if (whole.length > 1)
      parts.push(
        regexes.cat(
          regexes.alt([
            this.#text("0"),
            regexes.cat(this.#digits(1, 9), regexes.repeat(this.#digit, 0, whole.length - 2)),
          ]),
          anyFraction,
        ),
      );
    for (let i = 0; i < whole.length; i++) {
      const digit = Number(whole[i]);
      const least = i === 0 && whole.length > 1 ? 1 : 0;
      if (digit - 1 < least) continue;
      const rest = whole.length - 1 - i;
      parts.push(
        regexes.cat(
          this.#text(whole.slice(0, i)),
          this.#digits(least, digit - 1),
          regexes.repeat(this.#digit, rest, rest),
          anyFraction,
        ),
      );
    }
    // Same whole part: the fraction decides.
    const fractions: Regex[] = [];
    for (let i = 0; i < fraction.length; i++) {
      const digit = Number(fraction[i]);
      const begun = this.#text(fraction.slice(0, i));
      if (i > 0) fractions.push(begun); // shorter, and smaller since a fraction's last digit is not zero
      if (digit > 0) {
        fractions.push(regexes.cat(begun, this.#digits(0, digit - 1), regexes.star(this.#digit)));
      }
    }
    if (!isExclusive && fraction.length > 0) fractions.push(regexes.cat(this.#text(fraction), this.#zeros));
    const same: Regex[] = fractions.map((one) => regexes.cat(this.#text("."), one));
    if (fraction.length > 0) same.push(regexes.epsilon);
    else if (!isExclusive) same.push(this.#zeroFraction());
    parts.push(regexes.cat(this.#text(whole), regexes.alt(same)));
    return regexes.alt(parts);
  }

  #whole(): Regex {
    const regexes = this.#regexes;
    return regexes.alt([this.#text("0"), regexes.cat(this.#digits(1, 9), regexes.star(this.#digit))]);
  }

  #zeroFraction(): Regex {
    const regexes = this.#regexes;
    return regexes.optional(
      regexes.cat(this.#text("."), regexes.repeat(this.#digits(0, 0), 1, Number.POSITIVE_INFINITY)),
    );
  }

  #digits(from: number, to: number): Regex {
    return this.#regexes.bytes([48 + from, 48 + to]);
  }

  #text(text: string): Regex {
    return this.#regexes.literal(new TextEncoder().encode(text));
  }
}

/** States in an automaton of multiples at most. */
const MULTIPLES_MAX = 20_000;

interface Decimal {
  /** Whole part without leading zeros, except "0". */
  readonly whole: string;
  /** Fraction without trailing zeros; may be "". */
  readonly fraction: string;
}

/** Converts a number ≥ 0 to digits, without an exponent. */
function decimalOf(value: number): Decimal {
  const [mantissa = "", exponent = "0"] = String(value).split("e");
  const [whole = "", fraction = ""] = mantissa.split(".");
  const shift = Number(exponent);
  let left = whole;
  let right = fraction;
  if (shift > 0) {
    right = right.padEnd(shift, "0");
    left += right.slice(0, shift);
    right = right.slice(shift);
  } else if (shift < 0) {
    left = left.padStart(1 - shift, "0");
    right = left.slice(shift) + right;
    left = left.slice(0, shift);
  }
  return { whole: left.replace(/^0+(?=.)/, ""), fraction: right.replace(/0+$/, "") };
}

/**
 * Automaton that reads a decimal from the left and keeps the remainder: accepts multiples of divisor /
 * 10^places.
 */
function multiplesAutomaton(divisor: number, places: number): Automaton {
  const classOf = new Uint8Array(256).fill(12);
  for (let digit = 0; digit < 10; digit++) classOf[48 + digit] = digit;
  classOf[45] = 10;
  classOf[46] = 11;
  const classes = 13;
  // State: the next place (0: before the point), and the remainder of the digits so far.
  const stages = places + 2;
  if (stages * divisor > 4 * MULTIPLES_MAX) throw new ConstraintError("multipleOf has too many digits");
  const next = new Int32Array(stages * divisor * classes).fill(-1);
  const accepts = new Uint8Array(stages * divisor);
  const power = (exponent: number): number => {
    let result = 1 % divisor;
    for (let i = 0; i < exponent; i++) result = (result * 10) % divisor;
    return result;
  };
  for (let stage = 0; stage < stages; stage++) {
    // Digits missing to all places; stage 1 is right after the point.
    const missing = stage === 0 ? places : places - stage + 1;
    for (let remainder = 0; remainder < divisor; remainder++) {
      const state = stage * divisor + remainder;
      const isMultiple = (remainder * power(Math.max(missing, 0))) % divisor === 0;
      accepts[state] = isMultiple ? 1 : 0;
      for (let digit = 0; digit < 10; digit++) {
        const more = (remainder * 10 + digit) % divisor;
        const to = stage === 0 ? more : (stage + 1) * divisor + more;
        if (stage === 0 || stage <= places) next[state * classes + digit] = to;
        else if (digit === 0) next[state * classes + digit] = state;
      }
      if (stage === 0) {
        next[state * classes + 11] = divisor + remainder;
        if (remainder === 0) next[state * classes + 10] = state;
      }
    }
  }
  return { name: `multiples ${divisor} ${places}`, classOf, classes, next, accepts };
}
