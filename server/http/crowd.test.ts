import { expect, test } from "bun:test";
import { Crowd, placeOf } from "./crowd.ts";

class Member {
  isClosed = false;
  closeIdle(): void {
    this.isClosed = true;
  }
}

function crowdOf(limits: { readonly connections: number; readonly connectionsPerAddress: number }) {
  const crowd = new Crowd<Member>(limits);
  const come = (address: string) => {
    const admission = crowd.admit(address);
    if (admission !== "taken") return admission;
    const member = new Member();
    crowd.add(member, address);
    return member;
  };
  return { crowd, come, take: (address: string) => come(address) as Member };
}

test("an address that has as many connections as it may loses its longest idle one, and no other address does", () => {
  const { crowd, come, take } = crowdOf({ connections: 10, connectionsPerAddress: 2 });
  const other = take("192.0.2.7");
  const [first, second] = [take("192.0.2.1"), take("192.0.2.1")];
  crowd.setIdle(first, false);
  const third = take("192.0.2.1");
  expect([other, first, second, third].map(({ isClosed }) => isClosed)).toEqual([false, false, true, false]);
  crowd.setIdle(third, false);
  expect(come("192.0.2.1")).toBe("addressFull");
  crowd.delete(first);
  expect(take("192.0.2.1").isClosed).toBe(false);
});

test("this machine's addresses have no limit but that of all, where the longest idle connection gives way", () => {
  const { crowd, come, take } = crowdOf({ connections: 4, connectionsPerAddress: 1 });
  const members = ["192.0.2.1", "127.0.0.1", "::1", "127.0.0.1"].map(take);
  crowd.setIdle(members[0]!, false);
  crowd.setIdle(members[0]!, true);
  take("::ffff:127.0.0.1");
  expect(members.map(({ isClosed }) => isClosed)).toEqual([false, true, false, false]);
  for (const member of crowd) crowd.setIdle(member, false);
  expect(come("127.0.0.1")).toBe("full");
  expect(crowd.size).toBe(4);
});

test("an address stands for a client: of IPv6 its network's 64 bits", () => {
  const same = ["2001:db8::1", "2001:db8:0:0:ffff::", "2001:db8:0:0:1:2:3:4"].map(placeOf);
  expect(new Set(same).size).toBe(1);
  expect(placeOf("2001:db8:0:1::1")).not.toBe(same[0]);
  expect(placeOf("::ffff:192.0.2.1")).toBe(placeOf("192.0.2.1"));
});
