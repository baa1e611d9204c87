/** Connection that may be evicted for another. */
export interface Member {
  /** Ends it at once: no request is being answered on it. */
  closeIdle(): void;
}

/** Limits on the number of connections. */
export interface CrowdLimits {
  readonly connections: number;
  /** Connections from one address that is not this machine's. */
  readonly connectionsPerAddress: number;
}

/** Outcome of `admit`: the connection fits, or the limit that forbids it. */
export type Admission = "taken" | "full" | "addressFull";

/**
 * Connections within their limits, in total and per client address. A connection beyond a limit replaces the
 * one that has been idle longest, of the same address or of all. This machine's own addresses have no limit
 * of their own: a proxy's clients all come from there.
 */
export class Crowd<Connection extends Member> {
  readonly #limits: CrowdLimits;
  readonly #all = new Map<Connection, string>();
  /** Idle connections, the longest idle first. */
  readonly #idle = new Set<Connection>();
  readonly #perAddress = new Map<string, number>();

  constructor(limits: CrowdLimits) {
    this.#limits = limits;
  }

  get size(): number {
    return this.#all.size;
  }

  [Symbol.iterator](): IterableIterator<Connection> {
    return this.#all.keys();
  }

  /** Makes room for a connection from the address. */
  admit(address: string): Admission {
    const { connections, connectionsPerAddress } = this.#limits;
    const place = placeOf(address);
    if (place !== OWN && this.#count(place) >= connectionsPerAddress && !this.#makeRoom(place))
      return "addressFull";
    return this.#all.size < connections || this.#makeRoom(null) ? "taken" : "full";
  }

  /** Adds an admitted connection, which is idle. */
  add(connection: Connection, address: string): void {
    const place = placeOf(address);
    this.#all.set(connection, place);
    this.#idle.add(connection);
    this.#perAddress.set(place, this.#count(place) + 1);
  }

  setIdle(connection: Connection, isIdle: boolean): void {
    this.#idle.delete(connection);
    if (isIdle && this.#all.has(connection)) this.#idle.add(connection);
  }

  delete(connection: Connection): void {
    const place = this.#all.get(connection);
    if (place === undefined) return;
    this.#all.delete(connection);
    this.#idle.delete(connection);
    const left = this.#count(place) - 1;
    if (left === 0) this.#perAddress.delete(place);
    else this.#perAddress.set(place, left);
  }

  #count(place: string): number {
    return this.#perAddress.get(place) ?? 0;
  }

  /** Ends an idle connection, at this place or (null) anywhere; false if none is idle. */
  #makeRoom(place: string | null): boolean {
    for (const connection of this.#idle) {
      if (place !== null && this.#all.get(connection) !== place) continue;
      this.delete(connection);
      connection.closeIdle();
      return true;
    }
    return false;
  }
}

const OWN = "own";

/** Unit that counts as one client: an IPv4 address, or the 64-bit network prefix of an IPv6 address. */
export function placeOf(address: string): string {
  const v4 = /(?:^|:)(\d+\.\d+\.\d+\.\d+)$/.exec(address)?.[1];
  if (v4 !== undefined) return v4.startsWith("127.") ? OWN : v4;
  if (address === "::1" || address === "") return OWN;
  const [left = "", right] = address.split("::");
  const groups = (text: string): string[] => text.split(":").filter((group) => group !== "");
  const zeros = right === undefined ? 0 : 8 - groups(left).length - groups(right).length;
  const all = [...groups(left), ...Array.from({ length: zeros }, () => "0"), ...groups(right ?? "")];
  return all.slice(0, 4).join(":");
}
