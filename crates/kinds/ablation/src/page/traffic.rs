//! A server under somebody else's traffic: what its stages take of its CPU time.

use tlsdyno_base::units::{format_bytes, format_count, format_duration, format_percent, format_short, format_tenths};
use tlsdyno_record::model::ForeignTraffic;
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::document::Section;
use tlsdyno_runner::report::text::{capitalised, part_interval, part_number, stage_label};
use tlsdyno_stats::{Direction, PartOfWhole};

use crate::summary::traffic::{Traffic, TrafficShare};

pub fn section(foreign: &ForeignTraffic, traffic: &Traffic) -> Section {
    let told = |share: &TrafficShare| {
        let part = PartOfWhole::of(share.percent.value, share.percent.interval());
        [part_number(part), part_interval(part, share.percent.low, share.percent.high)]
    };
    let rows = Rows::new(&traffic.stages)
        .words("cost of", |share| stage_label(&share.stage))
        .pair("CPU", told)
        .number("of one computation", |share| format_duration(share.ns_per_call.max(0.0)))
        .number("computations", |share| format_count(share.calls));
    let meaning = format!(
        "Share of the server's CPU time that computing the stage once takes, from {} intervals of 20 to 100 ms in \
         random modes, in which the server used {} of CPU time for {} full handshakes and {} in records. Doubling \
         measures CPU time, not latency, and changes nothing on the wire.",
        format_count(traffic.intervals),
        format_duration(traffic.server_cpu_ns as f64),
        format_count(traffic.handshakes_full),
        format_bytes(traffic.record_bytes as f64)
    );
    let bounds = format!(
        "Doubling added {} of CPU time (at most {} % was allowed), and would have ended if the median of our own \
         requests had taken {} % longer than before, or some had failed.",
        format_percent(traffic.added_percent),
        format_short(foreign.at_most_percent),
        format_short(foreign.latency_within_percent)
    );
    Section::default().rows(rows).notes([meaning, bounds])
}

pub fn sentence(traffic: &Traffic) -> String {
    let is_known =
        |share: &&TrafficShare| share.percent.direction() == Direction::Bigger && share.percent.value <= 100.0;
    let resolved = traffic.stages.iter().filter(is_known);
    let first = resolved.max_by(|a, b| a.percent.value.total_cmp(&b.percent.value));
    let Some(TrafficShare { stage, percent, .. }) = first else {
        return "The cost of no stage could be told from noise; measure longer (--time), or allow more (--at-most)."
            .to_owned();
    };
    format!(
        "{} takes most: {} {} of the server's CPU time under its own traffic.",
        capitalised(&stage_label(stage)),
        format_percent(percent.value),
        percent.ends(format_tenths)
    )
}
