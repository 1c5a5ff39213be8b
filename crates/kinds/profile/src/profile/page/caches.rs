//! What a hit costs on processors with other clocks and caches.

use tlsdyno_base::units::{format_count, format_micros, format_percent};
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::document::Section;
use tlsdyno_runner::report::text::capitalised;

use crate::profile::caches::{CacheModel, OnProcessor, PROCESSORS};
use crate::profile::file::Handshakes;
use crate::profile::summary::ProfileSummary;

pub fn sections(summary: &ProfileSummary) -> Vec<Section> {
    let checked = summary.caches.first().map(|(_, model)| check(model));
    checked.into_iter().chain(summary.caches.iter().map(|(kind, model)| table(*kind, model))).collect()
}

fn check(model: &CacheModel) -> Section {
    let percent = |predicted: f64, timed: f64| format_percent((predicted / timed - 1.0) * 100.0);
    let rows = Rows::new(&model.stages)
        .words("", |stage| capitalised(&stage.name))
        .number("instructions", |stage| format_count(stage.work.instructions_count as u64))
        .number("near misses", |stage| format_count(stage.work.near_misses_count as u64))
        .number("far misses", |stage| format_count(stage.work.far_misses_count as u64))
        .number("mispredicted", |stage| format_count(stage.work.mispredicted_count as u64))
        .number("timed µs", |stage| format_micros(stage.timed_ns))
        .number_if_any("predicted µs", |stage| stage.predicted_ns.map(format_micros))
        .number_if_any("error", |stage| stage.predicted_ns.map(|predicted| percent(predicted, stage.timed_ns)));
    let fitted = model.fitted;
    let fit = format!(
        "Fitted on all stages: an instruction {:.3} ns, a near miss (of the first level) {:.2} ns, a branch predicted \
         wrongly {:.2} ns. Each stage is predicted by the fit on all others. The largest error is {}.",
        fitted.instruction_ns,
        fitted.near_miss_ns,
        fitted.mispredicted_ns,
        model.worst_percent().map_or("unknown".to_owned(), format_percent)
    );
    Section::titled("", "The model of caches beside timed calls, on this machine").rows(rows).notes([fit])
}

fn table(kind: Handshakes, model: &CacheModel) -> Section {
    let told = |of: &OnProcessor, user: bool| {
        let of = if user { of.user_ratio } else { of.tls_ratio };
        of.with_interval(|times| format!("{times:.2}"))
    };
    let rows = Rows::new(&model.processors)
        .words("processor", |of| capitalised(&of.processor))
        .number("near misses", |of| format_count(of.tls.near_misses_count as u64))
        .number("far misses", |of| format_count(of.tls.far_misses_count as u64))
        .number("TLS user µs", |of| format_micros(of.tls_user_ns))
        .number("plain user µs", |of| format_micros(of.plain_user_ns))
        .number("TLS costs, user space", |of| told(of, true))
        .number("TLS costs, with kernel", |of| told(of, false));
    let memory: Vec<String> =
        PROCESSORS.iter().map(|processor| format!("{} {} ns", processor.name, processor.memory_ns)).collect();
    let [kernel, plain_kernel] = model.kernel_ns;
    let assumed = format!(
        "TLS costs: how many times a hit without TLS one with it costs. Assumed: the same instructions on all, cycles \
         for each of them, for a near miss and for a wrong branch as on this machine, a far miss of so many \
         nanoseconds ({}), and that the kernel ({} µs of a hit, {} µs of one in plain HTTP here) slows down as the \
         server's own code in plain HTTP does. Intervals: leaving out one stage of the fit at a time.",
        memory.join(", "),
        format_micros(kernel),
        format_micros(plain_kernel)
    );
    let title = format!("A hit with a {} handshake on other processors, by a model of caches", kind.name());
    Section::titled("", title).text(trend(kind, model)).rows(rows).notes([assumed])
}

/// What the model makes of a faster processor. It is no verdict: a kernel that slows down as plain HTTP does leaves the
/// ratio as it is where hardly anything misses the last level, and its interval leaves the errors of stages out.
fn trend(kind: Handshakes, model: &CacheModel) -> String {
    let worst = model.worst_percent().map(|worst| format!(", whose stages are up to {} off", format_percent(worst)));
    let worst = worst.unwrap_or_default();
    format!(
        "With {} handshakes the model{worst} makes what TLS multiplies the cost of a hit by {} times what it is on a \
         CPU four times as fast beside the same memory. That follows from what the model assumes, and is no finding.",
        kind.name(),
        model.trend_ratio.with_interval(|times| format!("{times:.3}"))
    )
}
