//! The machines of an experiment, beside the paper's: hits per second of each configuration on each, with the paper's
//! bars hollow beside ours, and where the time of a hit goes.

use serde_json::{Value, json};
use tlsdyno_base::units::{NONE, format_count, format_interval, format_interval_with, format_percent, format_quantity};
use tlsdyno_record::store::Role;
use tlsdyno_runner::report::cells::bounded;
use tlsdyno_runner::report::charts::{
    COLOURS, axis, layer, names, palette, quantity, rule_mark, side_by_side, strips_with_labels, tooltip, with,
};
use tlsdyno_runner::report::document::{Cell, Chart, Column, Content, Medium, Section, Table, row};
use tlsdyno_runner::report::text::stage_label;
use tlsdyno_stats::{Estimate, Ratio};

use crate::summary::Summary;
use crate::summary::machines::{MachineRow, MachineShares, Machines, OnMachine};

/// Limits of a quota of CPU time as a model of a slow processor.
const QUOTA: &str = "Machines are quotas of CPU time in the ratio of their clock rates. Memory, buses and caches are \
                     as fast on all of them, so that no share changes with the CPU's speed by itself.";

pub fn sections(machines: &Machines, summary: &Summary) -> Vec<Section> {
    [Some(throughput(machines, summary)), shares(machines)].into_iter().flatten().collect()
}

fn throughput(machines: &Machines, summary: &Summary) -> Section {
    let cells = |of: &MachineRow| -> Vec<Cell> {
        let texts = of.machines.iter().flat_map(|cell| [ours(cell), interval(cell), theirs(cell)]);
        row([of.configuration.clone()].into_iter().chain(texts), false)
    };
    let mut columns = vec![Column::words("hits/s")];
    for machine in &machines.machines {
        let paper = Column::number("paper");
        columns.extend([Column::number(machine), Column::interval().on(Medium::Page), paper]);
    }
    let table = Table { columns, rows: machines.rows.iter().map(cells).collect() };
    let implied = machines.rows.iter().flat_map(|row| &row.machines).any(|cell| cell.paper_implied.is_some());
    let implied = implied.then(|| {
        "A range is what the paper's percentages leave where it does not print the throughput they are of.".to_owned()
    });
    let text = "Hits per second of each configuration on each machine, and the paper's.";
    Section::titled("on-machines", "On the paper's machines")
        .text(text)
        .charts(bars(machines))
        .with(Content::Table(table))
        .notes([QUOTA.to_owned()].into_iter().chain(emulation(machines)).chain(implied).chain(trend(machines, summary)))
}

/// Effect of the quotas on the CPU time of a hit.
fn emulation(machines: &Machines) -> Option<String> {
    let said = |(machine, times): (&String, &Option<Ratio>)| {
        let times = times.as_ref()?;
        let interval = format_interval_with(times.low, times.high, |end| format!("{end:.2}"));
        Some(format!("{:.2} {interval} ({machine})", times.times))
    };
    let times: Vec<String> = machines.machines.iter().zip(&machines.cpu_times).filter_map(said).collect();
    (!times.is_empty()).then(|| {
        format!(
            "A server that is stopped by its quota finds its caches cold when it goes on, so that the emulation moves \
             hits per second by itself: by the blocks a hit takes {} times the CPU time that it takes without a quota.",
            times.join(", ")
        )
    })
}

/// Factor by which TLS divides throughput on each machine, against section 3.2 of the paper.
fn trend(machines: &Machines, summary: &Summary) -> Option<String> {
    let row = |role: &Role| {
        let name = &summary.configuration(role)?.name;
        machines.rows.iter().find(|row| row.configuration == *name)
    };
    let (as_is, plain) = (row(&Role::AsIs)?, row(&Role::PlainHttp)?);
    let slashed = |factor: fn(&OnMachine, &OnMachine) -> String| {
        let pairs = plain.machines.iter().zip(&as_is.machines);
        pairs.map(|(plain, as_is)| factor(plain, as_is)).collect::<Vec<_>>().join(" / ")
    };
    let here = slashed(|plain, as_is| match (plain.hits_per_s, as_is.hits_per_s) {
        (Some(plain_rate), Some(as_is)) => {
            format!("{}{:.1}", if plain.client_bound { "≥ " } else { "" }, plain_rate.value / as_is.value)
        }
        _ => NONE.to_owned(),
    });
    let paper =
        slashed(|plain, as_is| match (plain.paper_hits_per_second, plain.paper_implied, as_is.paper_hits_per_second) {
            (Some(plain), _, Some(as_is)) => format!("{:.1}", plain / as_is),
            (None, Some((low, high)), Some(as_is)) => format!("{:.1}–{:.1}", low / as_is, high / as_is),
            _ => NONE.to_owned(),
        });
    Some(format!(
        "TLS divides hits per second by {here} on these machines, in the paper by {paper}. A quota makes no \
         processor slower, so that this says nothing of faster CPUs (section 3.2)."
    ))
}

fn ours(cell: &OnMachine) -> String {
    cell.hits_per_s.map_or(NONE.to_owned(), |rate| bounded(cell.client_bound, format_quantity(rate.value)))
}

fn interval(cell: &OnMachine) -> String {
    let known = cell.hits_per_s.filter(Estimate::has_interval);
    known.map_or(NONE.to_owned(), |rate| rate.ends(format_quantity))
}

fn theirs(cell: &OnMachine) -> String {
    let count = |number: f64| format_count(number.round() as u64);
    match (cell.paper_hits_per_second, cell.paper_implied) {
        (Some(paper), _) => count(paper),
        (None, Some((low, high))) => format!("{}–{}", count(low), count(high)),
        (None, None) => NONE.to_owned(),
    }
}

/// Three bars each, the paper's hollow beside ours, scaled to our hits per second by one factor.
fn bars(machines: &Machines) -> Option<Chart> {
    let mut rows = Vec::new();
    for of in &machines.rows {
        for (machine, cell) in machines.machines.iter().zip(&of.machines) {
            let bar = |whose: &str, rate: f64, said: String| {
                json!({
                    "name": of.configuration, "machine": machine, "whose": whose, "bar": format!("{machine}, {whose}"),
                    "rate": rate, "said": said,
                })
            };
            if let Some(rate) = cell.hits_per_s {
                let [low, high] = rate.drawn().interval();
                let ends = json!({"low": low, "high": high});
                rows.push(with(bar("here", rate.value, format!("{} {}", ours(cell), interval(cell))), ends));
            }
            let middle = cell.paper_hits_per_second.or(cell.paper_implied.map(|(low, high)| (low + high) / 2.0));
            if let (Some(scale), Some(paper)) = (machines.scale_times, middle) {
                rows.push(bar("the paper", paper * scale, theirs(cell)));
            }
        }
    }
    let height = 11 * rows.len() + 14 * machines.rows.len();
    let kinds: Vec<String> = machines
        .machines
        .iter()
        .flat_map(|machine| ["here", "the paper"].map(|of| format!("{machine}, {of}")))
        .collect();
    let offset = json!({"field": "bar", "sort": kinds});
    let colour =
        with(palette("machine", &machines.machines, &COLOURS), json!({"legend": {"title": null, "orient": "top"}}));
    let only = |whose: &str, layer: Value| {
        with(layer, json!({"transform": [{"filter": format!("datum.whose == '{whose}'")}]}))
    };
    let x = with(quantity("rate", "hits per second (95 % interval)"), json!({"axis": {"tickCount": 6}}));
    let solid = layer(json!({"type": "bar", "cornerRadiusEnd": 1}), json!({"x": x, "color": colour}));
    let hollow = layer(
        json!({"type": "bar", "filled": false, "strokeWidth": 1.2, "cornerRadiusEnd": 1}),
        json!({"x": axis("rate"), "color": colour}),
    );
    let ends = layer(rule_mark(), json!({"x": axis("low"), "x2": {"field": "high"}}));
    let fields = [("name", "configuration"), ("machine", "machine"), ("whose", "measured"), ("said", "hits/s")];
    let body = json!({
        "encoding": {"y": names("name", 180), "yOffset": offset, "tooltip": tooltip(fields)},
        "layer": [only("here", solid), only("the paper", hollow), only("here", ends)],
    });
    let scale = machines.scale_times.map_or(String::new(), |scale| {
        format!(
            " The paper's bars (hollow) are drawn {scale:.2} times as long as printed, so that those of the untouched \
             server on the first machine are alike."
        )
    });
    let in_words = |of: &MachineRow| {
        let rates: Vec<String> = of.machines.iter().map(ours).collect();
        format!("{} {}", of.configuration, rates.join(" / "))
    };
    let words: Vec<String> = machines.rows.iter().map(in_words).collect();
    let words = format!("Bars of hits per second on {}: {}.", machines.machines.join(" / "), words.join(", "));
    let chart = Chart::new("machines", height, rows, body)?;
    Some(chart.described(format!("Hits per second on each machine.{scale}"), words))
}

fn shares(machines: &Machines) -> Option<Section> {
    if machines.share_names.is_empty() {
        return None;
    }
    let mut columns = vec![Column::words("cost of, % of time/hit")];
    for machine in &machines.machines {
        columns.extend([Column::number(machine), Column::interval().on(Medium::Page), Column::number("paper")]);
    }
    let cells = |(at, name): (usize, &String)| {
        let of = |shares: &MachineShares| {
            let ours = shares.ours.iter().find(|share| share.stage == *name);
            let text = ours.map_or(NONE.to_owned(), |share| format_percent(share.percent));
            let ends = ours.map_or(NONE.to_owned(), |share| format_interval(share.low, share.high));
            let paper = shares.paper[at].map_or(NONE.to_owned(), |percent| format!("{percent:.0}"));
            [text, ends, paper]
        };
        row([stage_label(name)].into_iter().chain(machines.shares.iter().flat_map(of)), false)
    };
    let table = Table { columns, rows: machines.share_names.iter().enumerate().map(cells).collect() };
    Some(
        Section::titled("shares-on-machines", "Where the time of a hit goes on each machine")
            .charts(strips(machines))
            .with(Content::Table(table)),
    )
}

/// A strip for each machine and for the paper's.
fn strips(machines: &Machines) -> Option<Chart> {
    let mut rows = Vec::new();
    for (machine, shares) in machines.machines.iter().zip(&machines.shares) {
        let ours: Vec<Option<f64>> = machines
            .share_names
            .iter()
            .map(|name| shares.ours.iter().find(|share| share.stage == *name).map(|share| share.percent))
            .collect();
        for (whose, percents) in [("here", &ours), ("the paper", &shares.paper)] {
            let known =
                machines.share_names.iter().zip(percents).filter_map(|(name, percent)| Some((name, (*percent)?)));
            rows.extend(side_by_side(known.map(|(name, percent)| {
                let strip = format!("{machine}, {whose}");
                let label = format!("{percent:.0}");
                (percent.max(0.0), json!({"strip": strip, "whose": whose, "share": stage_label(name), "label": label}))
            })));
        }
    }
    let labels: Vec<String> = machines.share_names.iter().map(|name| stage_label(name)).collect();
    let colour =
        with(palette("share", &labels, &COLOURS), json!({"legend": {"title": null, "orient": "top", "columns": 4}}));
    let fields = [("strip", "machine"), ("share", "cost of"), ("label", "%")];
    let faint = json!({"condition": {"test": "datum.whose == 'the paper'", "value": 0.45}, "value": 1});
    let strips = layer(
        json!({"type": "bar", "height": 20}),
        json!({"color": colour, "opacity": faint, "tooltip": tooltip(fields)}),
    );
    let texts = layer(json!({"type": "text", "fontSize": 11, "aria": false}), json!({}));
    let body = strips_with_labels(["strip", "% of the time of a hit"], strips, texts);
    let height = 30 * 2 * machines.machines.len();
    let caption = "Shares of the time of a hit at saturation, ours and (faint) the paper's.";
    let words = "Stacked strips of shares for each machine, here and in the paper; the table has every number.";
    Some(Chart::new("machine-shares", height, rows, body)?.described(caption, words))
}
