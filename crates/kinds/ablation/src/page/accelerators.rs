//! Accelerators in a report: the gain that Amdahl's law predicts for their speed, beside the measured one.

use tlsdyno_base::units::format_short;
use tlsdyno_runner::report::document::{Content, Item, Section};
use tlsdyno_runner::report::text::{difference_with_interval, ratio_gain, ratio_times};
use tlsdyno_stats::{Direction, Estimate, Metric, Ratio};

use super::findings::signs;
use crate::summary::Summary;
use crate::summary::accelerators::{PredictedGain, Prediction};

pub(super) fn section(summary: &Summary) -> Option<Section> {
    let predictions = &summary.findings.accelerators;
    let ratios = || {
        let of = |of: &Prediction| {
            of.by
                .iter()
                .flat_map(|by| [by.predicted, by.measured_by_predicted])
                .chain([of.measured])
                .collect::<Vec<Ratio>>()
        };
        predictions.iter().flat_map(of)
    };
    let explained = "Amdahl's law counts the time of an operation in the accelerator as the server's. A server that \
                     does other work meanwhile gains more, up to what unlimited speed gains; one that waits, or an \
                     accelerator that is busy, makes it less.";
    let intro = "What an accelerator of finite speed should gain in hits per second, from the share of private-key \
                 operations in the cost of a hit, with 95 % intervals (Coarfa et al. 2006, section 3.4).";
    (!predictions.is_empty()).then(|| {
        Section::titled("accelerators", "Accelerators: Amdahl's law and what was measured")
            .text(intro)
            .with(Content::Items(predictions.iter().map(item).collect()))
            .notes([explained.to_owned()].into_iter().chain(signs(ratios())))
    })
}

fn item(prediction: &Prediction) -> Item {
    let decided = prediction.by.iter().any(|by| by.measured_by_predicted.direction != Direction::Undecided);
    let measured = format!("Measured: {} hits/s over \"{}\".", ratio_gain(&prediction.measured), prediction.over);
    Item {
        head: format!(
            "\"{}\", {} times as fast as the server's CPU",
            prediction.configuration,
            format_short(prediction.speed)
        ),
        text: [measured].into_iter().chain(prediction.by.iter().map(said)).chain([left(prediction)]).collect(),
        code: Vec::new(),
        muted: !decided,
    }
}

/// CPU time of an operation that the emulation leaves, beside that of a real card of that speed.
fn left(prediction: &Prediction) -> String {
    let Estimate { value, .. } = prediction.left_percent;
    format!(
        "With it an operation takes {value:.0} % {} of the CPU time that it takes without; at that speed {:.0} % would \
         be left. The rest is waiting for it and being woken up.",
        prediction.left_percent.ends(|end| format!("{end:.0}")),
        100.0 / prediction.speed
    )
}

/// Prediction from one share, and its difference from the measured gain.
fn said(by: &PredictedGain) -> String {
    let cost = match by.share.metric {
        Metric::Cpu => "CPU",
        Metric::Throughput => "time",
    };
    let beyond = ratio_times(&by.measured_by_predicted);
    let verdict = match by.measured_by_predicted.direction {
        Direction::Bigger => format!("the measured gain is larger ({beyond} the predicted hits/s)"),
        Direction::Smaller => format!("the measured gain is smaller ({beyond} the predicted hits/s)"),
        Direction::Undecided => {
            format!("whether the measured gain is larger or smaller is undecided ({beyond} the predicted hits/s)")
        }
    };
    format!(
        "From {} of a hit's {cost}: {} predicted (unlimited speed: {}); {verdict}.",
        difference_with_interval(&by.share),
        ratio_gain(&by.predicted),
        ratio_gain(&by.unlimited)
    )
}
