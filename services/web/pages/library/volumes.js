// Folders that agents work in: those of the configuration files, those made at run time, and those that end with their runs.
import { html, useState } from "../../ui.js";
import { library } from "../../api.js";
import { Button, Chip, Field, Id } from "../../components/controls.js";
import { Confirm, Dialog } from "../../components/dialog.js";
import { Empty, ErrorState, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { TenantField } from "../../components/tenant.js";
import { Time } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { usePageTitle } from "../../frame.js";
import { useAction, useResource } from "../../resource.js";
import { here, link } from "../../router.js";
import { may } from "../../session.js";
import { Shelves } from "./shelves.js";

const MODES = { rw: "read and write", ro: "read only" };

export function VolumesPage() {
  usePageTitle("Volumes");
  const tenant = here.value.query.get("tenant") ?? "";
  const [asked, setAsked] = useState(/** @type {any} */ (null));
  const mayWrite = may("substrate:tenant");
  const volumes = useResource(
    async (signal) => {
      const [named, ephemeral] = await Promise.all([library.volumes({ tenant }, { signal }), library.ephemeralVolumes({ tenant }, { signal })]);
      return { named: named.entries, ephemeral: ephemeral.entries };
    },
    [tenant],
  );
  const operate = async (op, name, why, said) => {
    await library.operate("volume", { op, name, why }, { tenant });
    toast(said);
    volumes.reload();
  };
  const close = () => setAsked(null);
  return html`<div class="page full">
    <header><h1>Volumes</h1><span class="dim">Folders that agents work in.</span><span class="grow"></span>${mayWrite ? html`<${Button} kind="primary" icon="plus" onClick=${() => setAsked({ op: "create" })}>New volume<//>` : null}</header>
    <div class="library">
      <${Shelves} current="volumes" tenant=${tenant} />
      <section aria-label="Volumes" class="scrolls">
        <div class="bar"><${TenantField} /></div>
        <${Resource} of=${volumes}>${({ named, ephemeral }) => html`
          <section class="card"><header><h2>By name</h2></header><${PlainTable}
            label="Volumes" rows=${named} rowKey=${(row) => `${row.source} ${row.name}`}
            empty=${html`<${Empty} icon="archive" title="There is no volume"><p>Name folders under <code>volumes</code> in a configuration file; one with <code>dynamic_root: true</code> lets volumes be made here.</p><//>`}
            columns=${[
              { key: "name", title: "Name", sort: (row) => row.name, cell: (row) => html`<bdi>${row.name}</bdi>${row.default ? html` <${Chip} title="Used by agents that name none">default<//>` : null}${row.dynamic_root ? html` <${Chip} title="Volumes that are made at run time have their folders here">new ones lie here<//>` : null}` },
              { key: "source", title: "Source", sort: (row) => row.source, cell: (row) => (row.source === "static" ? html`<${Chip} tone="info">file<//>` : html`<${Chip}>made here<//>`) },
              { key: "mode", title: "Agents may", cell: (row) => html`<span class="nowrap">${MODES[row.mode] ?? row.mode}</span>` },
              { key: "path", title: "Folder", cell: (row) => (row.path ? html`<${Id} id=${row.path} short=${18} />` : html`<span class="dim">shown to administrators</span>`) },
              { key: "made", title: "Made", align: "right", sort: (row) => row.created_at ?? "", cell: (row) => html`<span class="nowrap"><${Time} at=${row.created_at} /></span>` },
              { key: "actions", title: html`<span class="spoken">Actions</span>`, hidden: !mayWrite, cell: (row) => (row.source === "static" ? null : html`<span class="actions nowrap-row"><${Button} small onClick=${() => setAsked({ op: "delete", name: row.name })}>Remove<//><${Button} small kind="danger" onClick=${() => setAsked({ op: "purge", name: row.name })}>Erase<//></span>`) },
            ]}
          /></section>
          ${ephemeral.length
            ? html`<section class="card"><header><h2>Of runs</h2><span class="dim">They end with the run that made them.</span></header><${PlainTable}
                label="Volumes of runs" rows=${ephemeral} rowKey=${(row) => `${row.root_run_id} ${row.name}`}
                columns=${[
                  { key: "name", title: "Name", sort: (row) => row.name, cell: (row) => html`<bdi>${row.name}</bdi>` },
                  { key: "run", title: "Run", cell: (row) => html`<${Id} id=${row.root_run_id} href=${link(`/runs/${encodeURIComponent(row.root_run_id)}`)} />` },
                  { key: "mode", title: "Agents may", cell: (row) => MODES[row.mode] ?? row.mode },
                  { key: "made", title: "Made", align: "right", sort: (row) => row.created_at ?? "", cell: (row) => html`<${Time} at=${row.created_at} />` },
                ]}
              /></section>`
            : null}
        `}<//>
      </section>
    </div>
    ${asked?.op === "create" ? html`<${NewVolume} tenant=${tenant} onClose=${close} onDone=${volumes.reload} />` : null}
    ${asked?.op === "delete" ? html`<${Confirm} title=${`Remove the volume ${asked.name}?`} confirm="Remove" danger takesReason onClose=${close} onConfirm=${(why) => operate("delete", asked.name, why, `${asked.name} is removed; its files are kept.`)}><p>Agents can no longer use it. Its files stay on the disk; a new volume of this name has them again.</p><//>` : null}
    ${asked?.op === "purge" ? html`<${Confirm} title=${`Erase the volume ${asked.name}?`} confirm="Erase" danger typed=${asked.name} takesReason onClose=${close} onConfirm=${(why) => operate("purge", asked.name, why, `${asked.name} and its files are erased.`)}><p>Its files are removed from the disk. This cannot be undone.</p><//>` : null}
  </div>`;
}

function NewVolume({ tenant, onClose, onDone }) {
  const [name, setName] = useState("");
  const [mode, setMode] = useState("rw");
  const action = useAction();
  const save = async () => {
    const made = await action.run(() => library.operate("volume", { op: "create", name: name.trim(), mode }, { tenant }));
    if (!made) return;
    toast(`The volume ${made.name} is created.`);
    onDone();
    onClose();
  };
  return html`<${Dialog} title="New volume" onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" isBusy=${action.isBusy} isDisabled=${!name.trim()} onClick=${save}>Create it<//>`}>
    <form class="fields" onSubmit=${(event) => (event.preventDefault(), name.trim() && save())}>
      <${Field} label="Name" value=${name} onInput=${setName} required autofocus hint="a-z, 0-9, _ and -, at most 64." />
      <${Field} label="Agents may" value=${mode} onInput=${setMode} options=${Object.entries(MODES).map(([value, title]) => ({ value, title }))} />
      <button type="submit" hidden></button>
    </form>
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  <//>`;
}
