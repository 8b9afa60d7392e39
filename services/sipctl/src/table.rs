//! A plan for people: racks as columns, and why not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use comfy_table::presets::UTF8_FULL;
use comfy_table::{ContentArrangement, Table};
use placement::{HostName, LabelValue};

use crate::plan::{Cell, Change, Grid, Plan, Planned, Row, WhyNot};
use crate::report::{Cluster, Remark};

/// Maximum number of domains side by side; more go below, in a table of their own. Also the maximum number of domains that are only free.
const MAX_COLUMNS: usize = 6;
/// Maximum number of lines of one list below a table.
const MAX_LINES: usize = 20;
/// Maximum number of hosts that one line names.
const MAX_HOSTS: usize = 6;

/// The plan as text. Its form may change; programs read the JSON.
#[must_use]
pub fn render(plan: &Plan) -> String {
    let clusters: Vec<String> = plan.clusters().iter().map(cluster).collect();
    let mut text = clusters.join("\n");
    if !plan.clusters().is_empty() {
        text.push_str(
            "\n= stays   + is taken   - is released   (n free) eligible hosts that no cluster holds\n",
        );
    }
    text
}

fn cluster(planned: &Planned) -> String {
    let Planned { report, grid } = planned;
    let Cluster {
        cluster,
        outcome,
        roles: _,
        release,
        reports,
        refusal,
    } = report;
    let mut text = format!("{cluster}: {}", outcome.as_str());
    match only_namespace(grid) {
        Some(namespace) => writeln!(text, ", hosts of namespace {namespace}"),
        None => writeln!(text),
    }
    .unwrap_or_default();
    for table in tables(grid) {
        text.push_str(&table);
        text.push('\n');
    }
    let released = release
        .iter()
        .map(|one| format!("{} ({}): {}", one.host, one.role, one.reason.as_str()));
    list(&mut text, "Released", released);
    if let Some(refusal) = refusal {
        let _ = writeln!(text, "Why not: {}", refusal.message);
        list(&mut text, "Would help", refusal.helps.iter().cloned());
    }
    for WhyNot { role, reasons } in &grid.why_not {
        list(
            &mut text,
            &format!("Not taken for {role}"),
            reasons.iter().map(reason),
        );
    }
    let reports = reports.iter().map(
        |Remark {
             host: _,
             kind,
             role: _,
             message,
         }| format!("{message} ({kind})"),
    );
    list(&mut text, "Reports", reports);
    text
}

fn list(text: &mut String, title: &str, lines: impl ExactSizeIterator<Item = String>) {
    let more = lines.len().saturating_sub(MAX_LINES);
    if lines.len() > 0 {
        let _ = writeln!(text, "{title}:");
    }
    for line in lines.take(MAX_LINES) {
        let _ = writeln!(text, "  {line}");
    }
    if more > 0 {
        let _ = writeln!(text, "  and {more} more");
    }
}

fn reason((why, hosts): &(String, Vec<HostName>)) -> String {
    let named: Vec<String> = hosts.iter().take(MAX_HOSTS).map(ToString::to_string).collect();
    let more = match hosts.len().saturating_sub(MAX_HOSTS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}: {why}", named.join(", "))
}

/// The domains to show: all in which something happens, and a few of those that are only free; and how many are left out.
fn columns(grid: &Grid) -> (Vec<&Option<LabelValue>>, usize) {
    let mut busy: BTreeMap<(bool, &Option<LabelValue>), bool> = BTreeMap::new();
    for (domain, cell) in grid.rows.values().flat_map(|row| &row.cells) {
        *busy.entry((domain.is_none(), domain)).or_default() |= !cell.hosts.is_empty();
    }
    let (all, mut idle) = (busy.len(), 0);
    let mut shown = Vec::new();
    for ((_, domain), busy) in busy {
        idle += usize::from(!busy);
        if busy || idle <= MAX_COLUMNS {
            shown.push(domain);
        }
    }
    let left_out = all.saturating_sub(shown.len());
    (shown, left_out)
}

/// One table for every few domains. Domains in which nothing happens and nothing is free are left out.
fn tables(grid: &Grid) -> Vec<String> {
    let Grid {
        key,
        rows,
        why_not: _,
    } = grid;
    if rows.is_empty() {
        return Vec::new();
    }
    let (domains, left_out) = columns(grid);
    let title = |domain: &&Option<LabelValue>| match (key, domain) {
        (None, _) => "hosts".to_owned(),
        (Some(_), Some(value)) if value.is_empty() => "(empty label)".to_owned(),
        (Some(_), Some(value)) => value.to_string(),
        (Some(_), None) => "(no label)".to_owned(),
    };
    let corner = key
        .as_ref()
        .map_or_else(|| "role".to_owned(), |key| format!("role \\ {key}"));
    let namespace = only_namespace(grid);
    let one = |domains: &[&Option<LabelValue>]| {
        let mut table = Table::new();
        table
            .load_style(UTF8_FULL)
            .set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(std::iter::once(corner.clone()).chain(domains.iter().map(title)));
        for (role, row) in rows {
            let Row { want, have, cells } = row;
            let cells = domains.iter().map(|domain| {
                cells
                    .get(*domain)
                    .map(|cell| self::cell(cell, namespace))
                    .unwrap_or_default()
            });
            table.add_row(std::iter::once(format!("{role} {have}/{want}")).chain(cells));
        }
        table.to_string()
    };
    if domains.is_empty() {
        return vec![one(&[])];
    }
    let mut tables: Vec<String> = domains.chunks(MAX_COLUMNS).map(one).collect();
    if left_out > 0 {
        tables.push(format!("and {left_out} more domains with free hosts"));
    }
    tables
}

/// The namespace of all hosts, if it is one: then it need not be repeated in each cell.
fn only_namespace(grid: &Grid) -> Option<&str> {
    let cells = grid.rows.values().flat_map(|row| row.cells.values());
    let hosts = cells
        .flat_map(|cell| &cell.hosts)
        .filter_map(|(host, _)| host.split_once('/'));
    let namespaces: BTreeSet<&str> = hosts.map(|(namespace, _)| namespace).collect();
    match namespaces.len() {
        1 => namespaces.first().copied(),
        _ => None,
    }
}

fn cell(cell: &Cell, namespace: Option<&str>) -> String {
    let Cell { hosts, free } = cell;
    let short = |host: &str| match (namespace, host.split_once('/')) {
        (Some(_), Some((_, name))) => name.to_owned(),
        (_, _) => host.to_owned(),
    };
    let sign = |change: &Change| match change {
        Change::Keep => '=',
        Change::Take => '+',
        Change::Release => '-',
    };
    let mut lines: Vec<String> = hosts
        .iter()
        .map(|(host, change)| format!("{} {}", sign(change), short(host)))
        .collect();
    if *free > 0 {
        lines.push(format!("({free} free)"));
    }
    lines.join("\n")
}
