/* The page "Hive federation" in Airflow: one module on the host's React, without a build step.
 *
 * Airflow imports this module and renders the component that it assigns to a global of the page's name. Airflow
 * 3.2 and later lend Chakra UI and the router, too; where they are missing, plain elements and the history API
 * take their places. Texts of the data become text nodes only: no markup in a name is ever parsed.
 */
const React = globalThis.React;
const Chakra = globalThis.ChakraUI ?? {};
const Router = globalThis.ReactRouterDOM ?? {};
const { createElement: h, useCallback, useEffect, useRef, useState } = React;

const NAME = "Hive federation";
/** The prefix of the page's data, whatever the prefix of Airflow's URLs is. */
const HERE = new URL("./", import.meta.url);
/** The root of Airflow's pages and of its API. */
const AIRFLOW = new URL("../", HERE);
const POLL_MS = 5_000;
const SLOWEST_POLL_MS = 60_000;
const PAGE_ROWS = 50;

// -- formats ---------------------------------------------------------------------------------------------

const count = (value) => (value == null ? "–" : Number(value).toLocaleString("en-US"));

function bytes(value) {
  if (value == null) return "–";
  const units = [value === 1 ? "byte" : "bytes", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  let size = Number(value);
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? size : size.toFixed(1)} ${units[unit]}`;
}

function duration(seconds) {
  if (seconds == null) return "–";
  const whole = Math.max(0, Number(seconds));
  if (whole < 10) return `${whole.toFixed(1)} s`;
  if (whole < 120) return `${Math.round(whole)} s`;
  if (whole < 7_200) return `${Math.round(whole / 60)} min`;
  if (whole < 172_800) return `${Math.round(whole / 3_600)} h`;
  return `${Math.round(whole / 86_400)} days`;
}

const several = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
const time = (seconds) => (seconds ? new Date(seconds * 1000).toLocaleString() : "–");
const ago = (seconds, now) => (seconds ? `${duration(now - seconds)} ago` : "–");

// -- elements --------------------------------------------------------------------------------------------

const Button = (props) =>
  Chakra.Button
    ? h(Chakra.Button, { size: "xs", variant: "outline", type: "button", ...props })
    : h("button", { type: "button", className: "hf-button", ...props });
const Input = (props) =>
  Chakra.Input
    ? h(Chakra.Input, { size: "sm", maxWidth: "20rem", ...props })
    : h("input", { className: "hf-input", ...props });
const Heading = ({ level, ...props }) =>
  Chakra.Heading
    ? h(Chakra.Heading, { as: `h${level}`, size: level === 1 ? "xl" : "md", ...props })
    : h(`h${level}`, { className: "hf-heading", ...props });

const TONES = {
  broken: "bad",
  blocked: "bad",
  differs: "bad",
  stale: "warn",
  unreadable: "bad",
  failed: "bad",
  refused: "warn",
  "bad records": "warn",
  "source away": "warn",
  behind: "warn",
  "not published": "warn",
  running: "info",
  "in step": "good",
  published: "good",
  compacted: "good",
  succeeded: "good",
};
const Status = ({ children }) =>
  h("span", { className: `hf-status hf-${TONES[children] ?? "info"}` }, String(children));

const Notice = ({ tone, title, children }) =>
  h("div", { className: `hf-notice hf-${tone}`, role: tone === "bad" ? "alert" : "status" }, h("strong", null, title), children);

const STYLE = `
.hf { --hf-line: var(--chakra-colors-border, #d4d4d8); --hf-muted: var(--chakra-colors-fg-muted, #52525b);
  --hf-good: #166534; --hf-warn: #854d0e; --hf-bad: #b91c1c; --hf-info: #1d4ed8; --hf-tint: 8%;
  padding: 1rem; max-width: 100%; color: var(--chakra-colors-fg, inherit); font-size: 0.875rem; line-height: 1.45; }
.dark .hf { --hf-good: #86efac; --hf-warn: #fde047; --hf-bad: #fca5a5; --hf-info: #93c5fd; --hf-tint: 14%; }
.hf h1, .hf h2 { margin: 0; }
.hf .hf-heading { font-weight: 600; font-size: 1.05rem; } .hf h1.hf-heading { font-size: 1.25rem; }
.hf section { margin-top: 1.25rem; }
.hf-bar { display: flex; flex-wrap: wrap; gap: 0.5rem 1rem; align-items: center; margin: 0.5rem 0; }
.hf-bar > .hf-end { margin-inline-start: auto; }
.hf-muted { color: var(--hf-muted); }
.hf-scroll { overflow-x: auto; border: 1px solid var(--hf-line); border-radius: 6px; }
.hf-scroll:focus-visible, .hf a:focus-visible, .hf th button:focus-visible { outline: 2px solid var(--hf-info); outline-offset: 1px; }
.hf table { width: 100%; border-collapse: collapse; }
.hf caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.hf th, .hf td { padding: 0.4rem 0.6rem; text-align: start; vertical-align: top; border-bottom: 1px solid var(--hf-line);
  overflow-wrap: anywhere; }
.hf td.hf-text { min-width: 9rem; }
.hf tr:last-child td { border-bottom: 0; }
.hf th { white-space: nowrap; font-weight: 600; }
.hf .hf-number { text-align: end; white-space: nowrap; font-variant-numeric: tabular-nums; }
.hf th button { font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; }
.hf a { color: var(--hf-info); text-decoration: underline; }
.hf-status { display: inline-block; padding: 0 0.5rem; border-radius: 999px; font-weight: 600; white-space: nowrap;
  border: 1px solid currentColor; }
.hf-good { color: var(--hf-good); } .hf-warn { color: var(--hf-warn); }
.hf-bad { color: var(--hf-bad); } .hf-info { color: var(--hf-info); }
.hf-notice { border: 1px solid currentColor; border-radius: 6px; padding: 0.6rem 0.8rem; margin: 0.5rem 0;
  background: color-mix(in srgb, currentColor var(--hf-tint), transparent); overflow-wrap: anywhere; }
.hf-notice > * + * { display: block; color: var(--chakra-colors-fg, inherit); }
.hf-facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: 0.6rem; margin: 0.5rem 0; }
.hf-facts > div { border: 1px solid var(--hf-line); border-radius: 6px; padding: 0.5rem 0.7rem; }
.hf-facts dt { color: var(--hf-muted); } .hf-facts dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
.hf-chart { width: 100%; height: 8rem; display: block; border: 1px solid var(--hf-line); border-radius: 6px; }
.hf-chart polyline { fill: none; stroke: var(--hf-info); stroke-width: 2; vector-effect: non-scaling-stroke; }
.hf-chart polygon { fill: var(--hf-info); opacity: 0.15; }
.hf-tabs { border-bottom: 1px solid var(--hf-line); margin-bottom: 0; }
.hf a.hf-tab { padding: 0.4rem 0.2rem; text-decoration: none; color: var(--hf-muted); font-weight: 600; border-bottom: 3px solid transparent; }
.hf a.hf-tab[aria-current] { color: var(--chakra-colors-fg, inherit); border-bottom-color: var(--hf-info); }
.hf-button, .hf-input { font: inherit; color: inherit; background: none; border: 1px solid var(--hf-line);
  border-radius: 4px; padding: 0.2rem 0.6rem; }
.hf-button { cursor: pointer; } .hf-button:disabled { opacity: 0.6; cursor: default; }
.hf-plain { list-style: none; margin: 0; padding: 0; }
.hf-lines { margin: 0.25rem 0; padding-inline-start: 1.2rem; overflow-wrap: anywhere; }
@media (max-width: 640px) { .hf { padding: 0.5rem; } .hf-facts { grid-template-columns: 1fr 1fr; gap: 0.3rem; }
  .hf-facts > div { padding: 0.3rem 0.5rem; } .hf th, .hf td { padding: 0.3rem 0.4rem; }
  .hf td.hf-text { min-width: 6rem; } .hf .hf-wide { display: none; } .hf-bar > .hf-end { margin-inline-start: 0; } }
`;

// -- data ------------------------------------------------------------------------------------------------

class Refusal extends Error {
  constructor(status, message, remedy) {
    super(message);
    this.status = status;
    this.remedy = remedy;
  }
}

async function ask(url, options) {
  const answer = await fetch(url, { credentials: "same-origin", headers: { Accept: "application/json" }, ...options });
  const body = await answer.json().catch(() => ({}));
  if (answer.ok) return body;
  const detail = typeof body.detail === "string" ? body.detail : `Airflow answered with status ${answer.status}.`;
  throw new Refusal(answer.status, detail, body.remedy);
}

/** Ask again and again, more seldom while there is no answer, and not at all while the page is hidden. */
function usePoll(path, parameters) {
  const url = new URL(path, HERE);
  for (const [name, value] of Object.entries(parameters ?? {})) url.searchParams.set(name, value);
  const address = url.href;
  const [state, setState] = useState({ address: "", data: null, error: null, at: null });
  const again = useRef(() => {});
  useEffect(() => {
    const ended = new AbortController();
    let timer = 0;
    let pause = POLL_MS;
    async function look() {
      globalThis.clearTimeout(timer);
      if (!document.hidden) {
        try {
          const data = await ask(address, { signal: ended.signal });
          pause = POLL_MS;
          setState({ address, data, error: null, at: Date.now() });
        } catch (error) {
          if (ended.signal.aborted) return;
          pause = Math.min(pause * 2, SLOWEST_POLL_MS);
          setState((before) => ({ ...before, address, data: before.address === address ? before.data : null, error }));
        }
      }
      if (!ended.signal.aborted) timer = globalThis.setTimeout(look, pause);
    }
    again.current = look;
    const seen = () => document.hidden || look();
    document.addEventListener("visibilitychange", seen);
    look();
    return () => {
      ended.abort();
      globalThis.clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [address]);
  // While the next part of a list is on its way, the part before stays in sight.
  return { ...state, waiting: state.address !== address, refresh: useCallback(() => again.current(), []) };
}

/** The selected tab and policy, which are a part of the page's URL. */
function useRouterSelection() {
  const [parameters, setParameters] = Router.useSearchParams();
  return [Object.fromEntries(parameters), setParameters];
}

function useHistorySelection() {
  const read = () => Object.fromEntries(new URLSearchParams(globalThis.location.search));
  const [selected, setSelected] = useState(read);
  useEffect(() => {
    const changed = () => setSelected(read());
    globalThis.addEventListener("popstate", changed);
    return () => globalThis.removeEventListener("popstate", changed);
  }, []);
  return [
    selected,
    (next) => {
      const url = new URL(globalThis.location.href);
      url.search = new URLSearchParams(next).toString();
      globalThis.history.pushState(globalThis.history.state, "", url);
      setSelected(next);
    },
  ];
}

/** Follow a link within the page, unless the user wants a new tab or window. */
function follow(event, go) {
  if (event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  go();
}

const useSelection = Router.useSearchParams ? useRouterSelection : useHistorySelection;

// -- parts of the page -----------------------------------------------------------------------------------

function Trouble({ error }) {
  if (!error) return null;
  if (error.status === 401)
    return h(Notice, { tone: "warn", title: "Your session has expired. " },
      h("span", null, "Reload this page to log in again; what is shown below is the last answer."));
  if (error.status === 403)
    return h(Notice, { tone: "bad", title: "You have no right to see this page. " },
      h("span", null, "Ask an administrator of Airflow for the right to read its website."));
  if (error instanceof Refusal)
    return h(Notice, { tone: "bad", title: error.message }, error.remedy ? h("span", null, error.remedy) : null);
  return h(Notice, { tone: "warn", title: "Airflow does not answer. " },
    h("span", null, "The page tries again by itself; what is shown below is the last answer."));
}

function Updated({ poll }) {
  return h("div", { className: "hf-bar hf-end" },
    h("span", { className: "hf-muted" }, poll.at ? `Last update ${new Date(poll.at).toLocaleTimeString()}` : "Loading…"),
    h(Button, { onClick: poll.refresh, "aria-label": "Update now" }, "Update"));
}

/** A table whose columns sort on the server; `columns` have id, label, sort, number, wide and show(row). */
function Table({ label, columns, rows, sort, onSort, rowKey }) {
  const header = (column) => {
    if (!column.sort) return column.label;
    const down = sort === `-${column.sort}`;
    const up = sort === column.sort;
    return h("button", { type: "button", onClick: () => onSort((column.number ? !down : up) ? `-${column.sort}` : column.sort) },
      column.label, h("span", { "aria-hidden": true }, down ? " ▼" : up ? " ▲" : ""));
  };
  const sorted = (column) =>
    !column.sort ? undefined : sort === column.sort ? "ascending" : sort === `-${column.sort}` ? "descending" : "none";
  const name = (column) => [column.number ? "hf-number" : "hf-text", column.wide ? "hf-wide" : ""].join(" ");
  return h("div", { className: "hf-scroll", role: "region", "aria-label": `${label}: rows`, tabIndex: 0 },
    h("table", null,
      h("caption", null, label),
      h("thead", null, h("tr", null, columns.map((column) =>
        h("th", { key: column.label, scope: "col", className: name(column), "aria-sort": sorted(column) }, header(column))))),
      h("tbody", null, rows.map((row, index) =>
        h("tr", { key: rowKey ? rowKey(row) : index }, columns.map((column) =>
          h("td", { key: column.label, className: name(column) }, column.show(row))))))));
}

/** The state of a list that the server filters, sorts and divides. */
function useList(path, initialSort) {
  const [text, setText] = useState("");
  const [q, setQ] = useState("");
  const [sort, setSort] = useState(initialSort);
  const [offset, setOffset] = useState(0);
  useEffect(() => {
    const timer = globalThis.setTimeout(() => {
      setQ(text);
      setOffset(0);
    }, 250);
    return () => globalThis.clearTimeout(timer);
  }, [text]);
  const poll = usePoll(path, { q, sort, limit: PAGE_ROWS, offset });
  return {
    poll, text, setText, sort, offset, setOffset,
    onSort: (next) => {
      setSort(next);
      setOffset(0);
    },
  };
}

function Filter({ list, label }) {
  return h(Input, { type: "search", value: list.text, "aria-label": label, placeholder: label,
    onChange: (event) => list.setText(event.target.value) });
}

function Pager({ list, total }) {
  if (total <= PAGE_ROWS) return null;
  const last = Math.min(list.offset + PAGE_ROWS, total);
  return h("nav", { className: "hf-bar", "aria-label": "Parts of the list" },
    h(Button, { disabled: list.offset === 0, onClick: () => list.setOffset(Math.max(0, list.offset - PAGE_ROWS)) }, "Previous"),
    h("span", null, `${count(list.offset + 1)}–${count(last)} of ${count(total)}`),
    h(Button, { disabled: last >= total, onClick: () => list.setOffset(list.offset + PAGE_ROWS) }, "Next"));
}

const taskUrl = (by) => {
  const parts = ["dags", by.dag_id, "runs", by.run_id, "tasks", by.task_id, ...(by.map_index >= 0 ? ["mapped", String(by.map_index)] : [])];
  return new URL(parts.map(encodeURIComponent).join("/"), AIRFLOW).href;
};

function PublishedBy({ by }) {
  if (!by) return "–";
  return by.dag_id ? h("a", { href: taskUrl(by) }, by.task_id) : by.command || "–";
}

/** The lag as a line over time, with its last value in words for those who do not see it. */
function LagChart({ history, field, title, format }) {
  const points = history.filter((point) => point[field] != null);
  if (points.length < 2) return null;
  const [first, last] = [points[0], points.at(-1)];
  const highest = Math.max(...points.map((point) => point[field]), 1e-9);
  const span = Math.max(last.at_s - first.at_s, 1);
  const line = points.map((point) => `${(1000 * (point.at_s - first.at_s)) / span},${98 - (94 * point[field]) / highest}`);
  const words = `${title}: now ${format(last[field])}, at most ${format(highest <= 1e-9 ? 0 : highest)} since ${time(first.at_s)}`;
  return h("figure", { style: { margin: "0.5rem 0" } },
    h("svg", { className: "hf-chart", viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": words },
      h("polygon", { points: `0,98 ${line.join(" ")} 1000,98` }),
      h("polyline", { points: line.join(" ") })),
    h("figcaption", { className: "hf-muted" }, words));
}

/** A button that triggers a run of the policy's DAG with the values of its last run, by Airflow's own API. */
function RunAgain({ by }) {
  const [state, setState] = useState({ step: "idle" });
  if (!by?.dag_id) return null;
  const api = (path) => new URL(`api/v2/dags/${encodeURIComponent(by.dag_id)}/${path}`, AIRFLOW);
  const dag = h("a", { href: new URL(`dags/${encodeURIComponent(by.dag_id)}`, AIRFLOW).href }, by.dag_id);
  async function trigger() {
    setState({ step: "working" });
    try {
      const before = await ask(api(`dagRuns/${encodeURIComponent(by.run_id)}`));
      const run = await ask(api("dagRuns"), {
        method: "POST",
        headers: { "Content-Type": "application/json", Accept: "application/json" },
        body: JSON.stringify({ logical_date: null, conf: before.conf ?? {} }),
      });
      setState({ step: "done", run: run.dag_run_id });
    } catch (error) {
      setState({ step: "failed", error });
    }
  }
  const buttons = {
    idle: () => [h(Button, { key: "run", onClick: () => setState({ step: "asked" }) }, "Run a cycle")],
    asked: () => [
      h("span", { key: "text" }, "Trigger ", dag, " with the values of its last run?"),
      h(Button, { key: "yes", onClick: trigger }, "Trigger"),
      h(Button, { key: "no", onClick: () => setState({ step: "idle" }) }, "Cancel"),
    ],
    working: () => [h("span", { key: "text" }, "Triggering…")],
    done: () => [
      h("span", { key: "text" }, "Triggered: ",
        h("a", { href: new URL(`dags/${encodeURIComponent(by.dag_id)}/runs/${encodeURIComponent(state.run)}`, AIRFLOW).href }, state.run)),
    ],
    failed: () => [
      h("span", { key: "text", className: "hf-bad" }, `Not triggered: ${state.error.message}`, " See ", dag, "."),
      h(Button, { key: "again", onClick: () => setState({ step: "idle" }) }, "Close"),
    ],
  };
  return h("div", { className: "hf-bar", role: "group", "aria-label": "Run a cycle", "aria-live": "polite" }, buttons[state.step]());
}

function verified(verification, now) {
  if (!verification) return "–";
  const wrong = verification.differences + verification.failures;
  const text = verification.differences
    ? several(verification.differences, "difference")
    : wrong ? `${several(verification.failures, "table")} unreadable` : "equal";
  return h("span", { className: wrong ? "hf-bad" : "hf-good" }, `${text}, ${ago(verification.published_s, now)}`);
}

/** The place of a dump; a link where the store has a web page of it. */
function dumpPlace({ dump, dump_url: url }) {
  if (!dump) return "–";
  return /^https?:\/\//.test(url) ? h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, dump) : dump;
}

// -- replication -----------------------------------------------------------------------------------------

function Policies({ select }) {
  const list = useList("replication", "");
  const { data, error } = list.poll;
  const now = data?.now_s;
  const columns = [
    { label: "Policy", sort: "name", show: (row) =>
      h("a", { href: `?policy=${encodeURIComponent(row.key)}`, onClick: (event) => follow(event, () => select({ policy: row.key })) },
        row.name || row.key) },
    { label: "State", sort: "health", show: (row) => h(Status, null, row.health) },
    { label: "Databases", wide: true, show: (row) => `${row.source_database} → ${row.target_database}` },
    { label: "Events behind", sort: "lag_events", number: true, show: (row) => count(row.lag_events) },
    { label: "Age", sort: "lag_s", number: true, show: (row) => duration(row.lag_s) },
    { label: "Bytes behind", sort: "lag_bytes", number: true, wide: true, show: (row) => bytes(row.lag_bytes) },
    { label: "Last cycle", wide: true, show: (row) => (row.last_cycle ? `${row.last_cycle.kind}, ${ago(row.last_cycle.ended_s, now)}` : "–") },
    { label: "Verification", wide: true, show: (row) => verified(row.verification, now) },
    { label: "Published", sort: "published_s", number: true, show: (row) => ago(row.published_s, now) },
  ];
  const empty = data && data.published === 0;
  return h("section", { "aria-labelledby": "hf-replication" },
    h("div", { className: "hf-bar" }, h(Heading, { level: 2, id: "hf-replication" }, "Replication"), h(Updated, { poll: list.poll })),
    h(Trouble, { error }),
    empty && h(Notice, { tone: "info", title: "No policy has published its state yet. " },
      h("span", null, "Run a replication task or command; if one has run, check that it and Airflow's API server have the same [hive_federation] state_uri.")),
    data && !empty && h(React.Fragment, null,
      h("div", { className: "hf-bar" }, h(Filter, { list, label: "Filter policies" }),
        h("span", { className: "hf-muted" }, `${count(data.total)} of ${count(data.published)} policies`)),
      h(Table, { label: "Policies", columns, rows: data.rows, sort: list.sort, onSort: list.onSort, rowKey: (row) => row.key }),
      h(Pager, { list, total: data.total })));
}

function Facts({ facts }) {
  return h("dl", { className: "hf-facts" }, facts.map(([label, value]) =>
    h("div", { key: label }, h("dt", null, label), h("dd", null, value))));
}

function Tables({ policy }) {
  const list = useList(`replication/${encodeURIComponent(policy)}/tables`, "-lag_events");
  const { data, error } = list.poll;
  const now = data?.now_s;
  const columns = [
    { label: "Table", sort: "name", show: (row) => row.name },
    { label: "Events behind", sort: "lag_events", number: true, show: (row) => count(row.lag_events) },
    { label: "Age", sort: "lag_s", number: true, show: (row) => duration(row.lag_s) },
    { label: "Bytes behind", sort: "lag_bytes", number: true, show: (row) => bytes(row.lag_bytes) },
    { label: "Rows of source", sort: "source_rows", number: true, wide: true, show: (row) => count(row.source_rows) },
    { label: "Rows of target", sort: "target_rows", number: true, wide: true, show: (row) => count(row.target_rows) },
    { label: "Verified", sort: "verified_s", wide: true, show: (row) =>
      row.verified_s == null ? "–"
        : h("span", { className: row.equal ? "hf-good" : "hf-bad" }, `${row.equal ? "equal" : "differs"}, ${ago(row.verified_s, now)}`) },
  ];
  return h("section", { "aria-labelledby": "hf-tables" },
    h("div", { className: "hf-bar" }, h(Heading, { level: 2, id: "hf-tables" }, "Tables"), h(Filter, { list, label: "Filter tables" }),
      data && h("span", { className: "hf-muted" }, several(data.total, "table"))),
    h(Trouble, { error }),
    data && data.total === 0 && h("p", { className: "hf-muted" }, list.text ? "No table matches." : "No table lags behind, and none was verified."),
    data && data.total > 0 && h(Table, { label: "Tables", columns, rows: data.rows, sort: list.sort, onSort: list.onSort, rowKey: (row) => row.name }),
    data && h(Pager, { list, total: data.total }));
}

function Cycles({ cycles, now }) {
  const columns = [
    { label: "Ended", show: (row) => h("time", { title: time(row.ended_s) }, ago(row.ended_s, now)) },
    { label: "Result", show: (row) => h(React.Fragment, null,
      h(Status, null, row.kind === "failed" ? "failed" : "published"), ` ${row.kind === "failed" ? "" : row.kind}`,
      row.cycles > 1 ? `, ${count(row.cycles)} times` : "",
      row.error && h("div", null, row.error), row.remedy && h("div", { className: "hf-muted" }, `Remedy: ${row.remedy}`)) },
    { label: "Event", number: true, wide: true, show: (row) => count(row.event_id) },
    { label: "Events", number: true, show: (row) => count(row.events) },
    { label: "Tables", number: true, wide: true, show: (row) => count(row.tables) },
    { label: "Files", number: true, wide: true, show: (row) => count(row.files) },
    { label: "Size", number: true, show: (row) => bytes(row.size_bytes) },
    { label: "Duration", number: true, show: (row) => duration(row.seconds) },
    { label: "Rate", number: true, wide: true, show: (row) => (row.seconds && row.size_bytes ? `${bytes(Math.round(row.size_bytes / row.seconds))}/s` : "–") },
    { label: "Task", wide: true, show: (row) => h(PublishedBy, { by: row.by }) },
  ];
  return h("section", { "aria-labelledby": "hf-cycles" },
    h(Heading, { level: 2, id: "hf-cycles" }, "Last cycles"),
    cycles.length ? h(Table, { label: "Last cycles", columns, rows: cycles }) : h("p", { className: "hf-muted" }, "No cycle has ended yet."));
}

function Policy({ policy, select }) {
  const poll = usePoll(`replication/${encodeURIComponent(policy)}`);
  const { data, error } = poll;
  const now = data?.now_s;
  const gone = error?.status === 404;
  const back = h("a", { href: "?", onClick: (event) => follow(event, () => select({})) }, "All policies");
  if (!data || gone)
    return h("section", null, back, gone ? h(Notice, { tone: "info", title: error.message }) : h(Trouble, { error }),
      !error && h("p", { className: "hf-muted" }, "Loading…"));
  const tone = TONES[data.health] ?? "info";
  return h("section", { "aria-labelledby": "hf-policy" }, back,
    h("div", { className: "hf-bar" },
      h(Heading, { level: 2, id: "hf-policy" }, data.name || data.key), h(Status, null, data.health),
      h(RunAgain, { by: data.cycle_by }), h(Updated, { poll })),
    h(Trouble, { error }),
    data.reason && h(Notice, { tone, title: data.reason }, data.remedy ? h("span", null, `Remedy: ${data.remedy}`) : null),
    h(Facts, { facts: [
      ["Databases", `${data.source_database} → ${data.target_database}`],
      ["Last event of the source", count(data.source_event_id)],
      ["Last event of the target", count(data.event_id)],
      ["Events behind", count(data.lag_events)],
      ["Age of the oldest", duration(data.lag_s)],
      ["Bytes behind", bytes(data.lag_bytes)],
      ["Verification", verified(data.verification, now)],
      ["Last dump", dumpPlace(data)],
      ["Published", h(React.Fragment, null, ago(data.published_s, now), " by ", h(PublishedBy, { by: data.by }))],
    ] }),
    h(LagChart, { history: data.history, field: "seconds", title: "Age of the oldest missing event", format: duration }),
    h(LagChart, { history: data.history, field: "events", title: "Missing events", format: count }),
    h(Tables, { policy, key: policy }),
    h(Cycles, { cycles: data.cycles, now }),
    data.verification_lines.length > 0 && h("section", { "aria-labelledby": "hf-differences" },
      h(Heading, { level: 2, id: "hf-differences" }, "Differences"),
      h("ul", { className: "hf-lines" }, data.verification_lines.map((line, index) => h("li", { key: index }, line)))),
    data.skipped_total > 0 && h("section", { "aria-labelledby": "hf-skipped" },
      h(Heading, { level: 2, id: "hf-skipped" }, `Not replicated: ${several(data.skipped_total, "table")}`),
      h(Table, { label: "Tables that are not replicated", rows: data.skipped, rowKey: (row) => row.name, columns: [
        { label: "Table", show: (row) => row.name },
        { label: "Reason", show: (row) => `${row.reason}${row.retained ? "; its replica is kept" : ""}` },
      ] })));
}

// -- remotes ---------------------------------------------------------------------------------------------

function Remotes() {
  const list = useList("remotes", "");
  const { data, error } = list.poll;
  const now = data?.now_s;
  const last = (row) => [
    row.created && several(row.created, "table") + " created",
    row.altered && several(row.altered, "table") + " altered",
    row.dropped && several(row.dropped, "table") + " dropped",
    row.partitions && several(row.partitions, "partition"),
    row.gone && `${several(row.gone, "link")} without a table`,
  ].filter(Boolean).join(", ");
  const columns = [
    { label: "Remote", sort: "name", show: (row) => row.name },
    { label: "State", sort: "health", show: (row) => h(React.Fragment, null, h(Status, null, row.health),
      row.failures > 1 ? `, ${count(row.failures)} times` : "",
      row.reason && h("div", null, row.reason), row.remedy && h("div", { className: "hf-muted" }, `Remedy: ${row.remedy}`)) },
    { label: "Points to", sort: "points_to", show: (row) => (row.points_to ? `${row.points_to}${row.via ? ` via ${row.via}` : ""}` : "–") },
    { label: "Metastore", sort: "metastore", wide: true, show: (row) => row.metastore ?? "–" },
    { label: "Event", sort: "event_id", number: true, wide: true, show: (row) => (row.event_id >= 0 ? count(row.event_id) : "–") },
    { label: "Last refresh", sort: "refreshed_s", number: true, show: (row) => ago(row.refreshed_s, now) },
    { label: "Last change", sort: "changed_s", number: true, wide: true, show: (row) => ago(row.changed_s, now) },
    { label: "Drift", wide: true, show: (row) => h(React.Fragment, null, last(row) || "none",
      row.skipped_total > 0 && h("details", null, h("summary", null, `${several(row.skipped_total, "table")} left out`),
        h("ul", { className: "hf-lines" }, Object.entries(row.skipped).map(([name, reason]) => h("li", { key: name }, `${name}: ${reason}`))))) },
    { label: "Task", wide: true, show: (row) => h(PublishedBy, { by: row.by }) },
  ];
  const empty = data && data.published === 0;
  return h("section", { "aria-labelledby": "hf-remotes" },
    h("div", { className: "hf-bar" }, h(Heading, { level: 2, id: "hf-remotes" }, "Remotes"), h(Updated, { poll: list.poll })),
    h(Trouble, { error }),
    empty && h(Notice, { tone: "info", title: "No remote has published its state yet. " },
      h("span", null, "Run a task that creates or refreshes a remote, or hive-federation remote refresh.")),
    data && !empty && h(React.Fragment, null,
      h("div", { className: "hf-bar" }, h(Filter, { list, label: "Filter remotes" }),
        h("span", { className: "hf-muted" }, `${count(data.total)} of ${several(data.published, "remote")}`)),
      h(Table, { label: "Remotes", columns, rows: data.rows, sort: list.sort, onSort: list.onSort, rowKey: (row) => row.key }),
      h(Pager, { list, total: data.total })));
}

// -- clusters --------------------------------------------------------------------------------------------

function copyState(copy, row, now) {
  const parts = row.partitions == null ? "" : `${count(copy.objects)} of ${several(row.partitions, "partition")}`;
  if (!copy.stale) return h("li", { key: copy.cluster }, `${copy.cluster}: ${parts || "current"}`);
  const behind = [
    row.partitions == null ? "stale" : `${count(copy.stale)} stale`,
    copy.stale_bytes != null && `${bytes(copy.stale_bytes)} to copy`,
    copy.lacks_writes != null && `lacks ${several(copy.lacks_writes, "write")}`,
    copy.lacks_since_s != null && `lacks a change of ${ago(copy.lacks_since_s, now)}`,
  ].filter(Boolean).join(", ");
  return h("li", { key: copy.cluster }, `${copy.cluster}: ${parts ? `${parts}, ` : ""}`, h("span", { className: "hf-warn" }, behind));
}

function ClusterTables() {
  const list = useList("clusters", "");
  const { data, error } = list.poll;
  const now = data?.now_s;
  const columns = [
    { label: "Table", sort: "name", show: (row) => row.name },
    { label: "State", sort: "health", show: (row) => h(React.Fragment, null, h(Status, null, row.health),
      row.failures > 1 ? `, ${count(row.failures)} times` : "",
      row.reason && h("div", null, row.reason), row.remedy && h("div", { className: "hf-muted" }, `Remedy: ${row.remedy}`)) },
    { label: "Primary", sort: "primary", show: (row) => (row.primary ? `${row.primary}${row.assigned ? "" : " (default)"}` : "–") },
    { label: "Copies", sort: "copied_to", show: (row) => (row.copies?.length
      ? h("ul", { className: "hf-plain" }, row.copies.map((copy) => copyState(copy, row, now))) : "–") },
    { label: "Stale", sort: "stale", number: true, show: (row) => count(row.stale) },
    { label: "Behind", sort: "behind_s", number: true, wide: true, show: (row) => duration(row.behind_s) },
    { label: "Metastore", sort: "metastore", wide: true, show: (row) => row.metastore ?? "–" },
    { label: "Looked at", sort: "looked_s", number: true, wide: true, show: (row) => ago(row.looked_s, now) },
    { label: "Task", wide: true, show: (row) => h(PublishedBy, { by: row.by }) },
  ];
  const empty = data && data.published === 0;
  const facts = (data?.clusters ?? []).map((cluster) => [cluster.name, h(React.Fragment, null,
    [cluster.tables && several(cluster.tables, "table"), cluster.copies && `copies of ${several(cluster.copies, "table")}`].filter(Boolean).join(", "),
    cluster.stale > 0 && h("span", { className: "hf-warn" }, `, ${count(cluster.stale)} stale`))]);
  return h("section", { "aria-labelledby": "hf-clusters" },
    h("div", { className: "hf-bar" }, h(Heading, { level: 2, id: "hf-clusters" }, "Tables by cluster"), h(Updated, { poll: list.poll })),
    h(Trouble, { error }),
    empty && h(Notice, { tone: "info", title: "No table of a cluster has been published yet. " },
      h("span", null, "Run ClusterStatusOperator, a task that copies or routes, or hive-federation cluster status.")),
    data && !empty && h(React.Fragment, null,
      h(Facts, { facts }),
      h("div", { className: "hf-bar" }, h(Filter, { list, label: "Filter tables of clusters" }),
        h("span", { className: "hf-muted" }, `${count(data.total)} of ${several(data.published, "table")}`)),
      h(Table, { label: "Tables by cluster", columns, rows: data.rows, sort: list.sort, onSort: list.onSort, rowKey: (row) => row.key }),
      h(Pager, { list, total: data.total })));
}

function Routes() {
  const list = useList("clusters/routes", "");
  const { data, error } = list.poll;
  const now = data?.now_s;
  const columns = [
    { label: "When", sort: "at_s", number: true, show: (row) => h("time", { title: time(row.at_s) }, ago(row.at_s, now)) },
    { label: "Cluster", sort: "cluster", show: (row) => (row.refused ? h(Status, null, "refused") : row.cluster || "–") },
    { label: "Reason", show: (row) => h(React.Fragment, null, row.reason,
      row.remedy && h("div", { className: "hf-muted" }, `Remedy: ${row.remedy}`),
      row.lines?.length > 0 && h("details", null, h("summary", null, "All reasons"),
        h("ul", { className: "hf-lines" }, row.lines.map((line, index) => h("li", { key: index }, line))))) },
    { label: "Tables", wide: true, show: (row) => row.tables.join(", ") || "–" },
    { label: "Metastore", sort: "metastore", wide: true, show: (row) => row.metastore },
    { label: "Task", wide: true, show: (row) => h(PublishedBy, { by: row.by }) },
  ];
  return h("section", { "aria-labelledby": "hf-routes" },
    h("div", { className: "hf-bar" }, h(Heading, { level: 2, id: "hf-routes" }, "Last routes"), h(Updated, { poll: list.poll })),
    h(Trouble, { error }),
    data && data.published === 0 && h("p", { className: "hf-muted" }, "No route of a statement has been published yet."),
    data && data.published > 0 && h(React.Fragment, null,
      h("div", { className: "hf-bar" }, h(Filter, { list, label: "Filter routes" })),
      h(Table, { label: "Last routes", columns, rows: data.rows, sort: list.sort, onSort: list.onSort }),
      h(Pager, { list, total: data.total })));
}

const Clusters = () => h(React.Fragment, null, h(ClusterTables), h(Routes));

// -- ingest and compaction -------------------------------------------------------------------------------

const INGESTED = { differs: "bad records", "in step": "succeeded" };

function Ingest() {
  const list = useList("ingest", "");
  const { data, error } = list.poll;
  const now = data?.now_s;
  const columns = [
    { label: "Table", sort: "name", show: (row) => row.name },
    { label: "State", sort: "health", show: (row) => h(React.Fragment, null, h(Status, null, INGESTED[row.health] ?? row.health),
      row.failures > 1 ? `, ${count(row.failures)} times` : "",
      row.reason && h("div", null, row.reason), row.remedy && h("div", { className: "hf-muted" }, `Remedy: ${row.remedy}`)) },
    { label: "Source", sort: "source", wide: true, show: (row) => row.source ?? "–" },
    { label: "Last run", sort: "ended_s", number: true, show: (row) => ago(row.ended_s, now) },
    { label: "Records", sort: "records", number: true, show: (row) => count(row.records) },
    { label: "Put aside", sort: "dead_letters", number: true, show: (row) => count(row.dead_letters) },
    { label: "Transactions", sort: "transactions", number: true, wide: true, show: (row) => count(row.transactions) },
    { label: "Records per s", sort: "records_per_s", number: true, wide: true, show: (row) => count(row.records_per_s) },
    { label: "Task", wide: true, show: (row) => h(PublishedBy, { by: row.by }) },
  ];
  return h("section", { "aria-labelledby": "hf-ingest" },
    h("div", { className: "hf-bar" }, h(Heading, { level: 2, id: "hf-ingest" }, "Ingest"), h(Updated, { poll: list.poll })),
    h(Trouble, { error }),
    data && data.published === 0 && h("p", { className: "hf-muted" }, "No task of streaming ingest has published its state yet."),
    data && data.published > 0 && h(React.Fragment, null,
      h("div", { className: "hf-bar" }, h(Filter, { list, label: "Filter tables of ingest" })),
      h(Table, { label: "Ingest", columns, rows: data.rows, sort: list.sort, onSort: list.onSort, rowKey: (row) => row.key }),
      h(Pager, { list, total: data.total })));
}

function Requests({ queue }) {
  const list = useList(`compaction/${encodeURIComponent(queue)}/requests`, "");
  const { data, error } = list.poll;
  const now = data?.now_s;
  const columns = [
    { label: "Table", sort: "table", show: (row) => [row.table, row.partition].filter(Boolean).join(" ") },
    { label: "State", sort: "state", show: (row) => h(React.Fragment, null, h(Status, null, row.state), row.message && h("div", null, row.message)) },
    { label: "Kind", sort: "kind", wide: true, show: (row) => row.kind },
    { label: "Since", sort: "at_s", number: true, show: (row) => ago(row.at_s, now) },
    { label: "Rows", sort: "rows", number: true, show: (row) => count(row.rows) },
    { label: "Deleted rows", sort: "deleted", number: true, wide: true, show: (row) => count(row.deleted) },
    { label: "Size", sort: "size_bytes", number: true, wide: true, show: (row) => bytes(row.size_bytes) },
    { label: "Duration", sort: "seconds", number: true, wide: true, show: (row) => duration(row.seconds) },
  ];
  return h(React.Fragment, null, h(Trouble, { error }),
    data && h(React.Fragment, null,
      h("div", { className: "hf-bar" }, h(Filter, { list, label: "Filter requests" })),
      data.total > 0
        ? h(Table, { label: "Requests", columns, rows: data.rows, sort: list.sort, onSort: list.onSort })
        : h("p", { className: "hf-muted" }, list.text ? "No request matches." : "No request waits, and none was served."),
      h(Pager, { list, total: data.total })));
}

function Compaction() {
  const poll = usePoll("compaction", { limit: 500 });
  const { data, error } = poll;
  const now = data?.now_s;
  const queue = (row) => h("section", { key: row.key, "aria-label": `Compaction of ${row.name}` },
    h("div", { className: "hf-bar" }, h(Heading, { level: 3 }, row.name)),
    row.reason && h(Notice, { tone: "bad", title: row.reason }, row.remedy ? h("span", null, row.remedy) : null),
    row.published_s && h(React.Fragment, null,
      h(Facts, { facts: [
        ["Requests", row.states ? Object.entries(row.states).map(([state, number]) => `${count(number)} ${state}`).join(", ") || "none" : "unknown"],
        ["Requests that wait", count(row.waiting_total)],
        ["Open transactions", count(row.open_txns)],
        ["Oldest open transaction", ago(row.oldest_open_s, now)],
        ["Earliest last heartbeat", ago(row.oldest_heartbeat_s, now)],
        ["Aborted, not cleaned", count(row.aborted_txns)],
        ["Published", h(React.Fragment, null, ago(row.published_s, now), " by ", h(PublishedBy, { by: row.by }))],
      ] }),
      h(Requests, { queue: row.key })));
  return h("section", { "aria-labelledby": "hf-compaction" },
    h("div", { className: "hf-bar" }, h(Heading, { level: 2, id: "hf-compaction" }, "Compaction"), h(Updated, { poll })),
    h(Trouble, { error }),
    data && data.published === 0 && h("p", { className: "hf-muted" }, "No compaction worker has published its state yet."),
    data && data.rows.map(queue));
}

const Work = () => h(React.Fragment, null, h(Ingest), h(Compaction));

// -- the page --------------------------------------------------------------------------------------------

const TABS = {
  replication: ["Replication", Policies],
  remotes: ["Remotes", Remotes],
  clusters: ["Clusters", Clusters],
  work: ["Ingest and compaction", Work],
};

function Page() {
  const [selected, select] = useSelection();
  const tab = TABS[selected.tab] ? selected.tab : "replication";
  const link = (name) => h("a", {
    key: name, href: `?tab=${name}`, className: "hf-tab", "aria-current": name === tab ? "page" : undefined,
    onClick: (event) => follow(event, () => select({ tab: name })),
  }, TABS[name][0]);
  return h("div", { className: "hf" },
    h("style", null, STYLE),
    h(Heading, { level: 1 }, NAME),
    h("nav", { className: "hf-bar hf-tabs", "aria-label": "Parts of the federation" }, Object.keys(TABS).map(link)),
    selected.policy && tab === "replication"
      ? h(Policy, { policy: selected.policy, select, key: selected.policy })
      : h(TABS[tab][1], { select, key: tab }));
}

globalThis[NAME] = Page;
