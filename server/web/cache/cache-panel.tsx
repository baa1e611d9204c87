import { signal } from "@preact/signals";
import type { VNode } from "preact";
import { Panel } from "../panel.tsx";
import { caches, server } from "../store.ts";
import { Evictions } from "./evictions.tsx";
import { Hits } from "./hits.tsx";
import { Icicle, type IcicleProps, wordsOf } from "./icicle.tsx";
import { NodeText } from "./node-text.tsx";
import type { TreeNode } from "./tree.ts";

const colour = signal<IcicleProps["colour"]>("age");
const engine = signal(0);
const zoomed = signal(0);
const looked = signal<TreeNode | null>(null);

/** Prefix cache of an engine as a tree. */
export function CachePanel(): VNode {
  const { caches: known, isWithheld, keys } = caches.value;
  const cache = known[engine.value] ?? null;
  const isOwn = server.isAdmin.value === false;
  return (
    <Panel name="cache">
      {isWithheld && (
        <p class="note">
          Keys of this server share their cached prefixes (--share-prefixes), so the tree of all needs the
          operator's key.
        </p>
      )}
      {server.isAdmin.value !== null && !isWithheld && (
        <section class="card" aria-labelledby="cache-title">
          <div class="head">
            <h2 id="cache-title">Prefix cache</h2>
            {known.length > 1 && <EngineChoice count={known.length} />}
            {!isOwn && <ColourChoice />}
            <button type="button" class="quiet" disabled={zoomed.value === 0} onClick={() => zoom(0)}>
              Show all
            </button>
          </div>
          <p class="looked">
            {looked.value !== null
              ? wordsOf(looked.value)
              : "A box is as wide as its pages, below its prefix. Leased ones have an outline, awaited ones a dashed one."}
          </p>
          {cache?.showsText === true && <NodeText engine={engine.value} node={looked.value?.id ?? 0} />}
          {cache === null || cache.pagesTotal === 0 ? (
            <p class="hint">Nothing is cached yet.</p>
          ) : (
            <Icicle
              name={`Prefix cache of engine ${engine.value}`}
              cache={cache}
              colour={isOwn ? "reads" : colour.value}
              zoomed={zoomed.value}
              onZoom={zoom}
              onLook={(node) => {
                looked.value = node;
              }}
            />
          )}
          {cache !== null && (
            <p class="hint">
              {cache.pagesTotal} pages in {cache.nodesTotal} nodes{isOwn && " of this key"}
              {cache.nodesTotal > cache.nodes.length &&
                `, of which the largest ${cache.nodes.length} are shown`}
            </p>
          )}
        </section>
      )}
      {cache !== null && cache.evictions.length > 0 && <Evictions evictions={cache.evictions} />}
      {keys.length > 0 && <Hits keys={keys} />}
    </Panel>
  );
}

function ColourChoice(): VNode {
  return (
    <label class="choice">
      Colour
      <select
        value={colour.value}
        onChange={({ currentTarget }) => {
          colour.value = currentTarget.value as IcicleProps["colour"];
        }}
      >
        <option value="age">later evicted is stronger</option>
        <option value="reads">more often read is stronger</option>
      </select>
    </label>
  );
}

function EngineChoice({ count }: { readonly count: number }): VNode {
  return (
    <label class="choice">
      Engine
      <select
        value={engine.value}
        onChange={({ currentTarget }) => {
          engine.value = Number(currentTarget.value);
          zoom(0);
        }}
      >
        {Array.from({ length: count }, (_, at) => (
          <option key={at} value={at}>
            {at}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Zooms to a node, or back to the whole tree if that node fills the width already. */
function zoom(id: number): void {
  zoomed.value = id === zoomed.value ? 0 : id;
  looked.value = null;
}
