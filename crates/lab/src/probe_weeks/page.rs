//! The report of a simulation.

use tlsdyno_base::units::format_duration;
use tlsdyno_probe::page::page;
use tlsdyno_probe::summary::SiteSummary;
use tlsdyno_report::document::{Document, Section};

use super::file::ProbeExperiment;

pub fn document(experiment: &ProbeExperiment, sites: &[SiteSummary]) -> Document {
    let robot = &experiment.probe;
    let mut document = page(sites);
    document.title.clone_from(&experiment.question);
    let text = format!(
        "{} days of virtual time: each round is one that was measured at a server on this machine, with the network in \
         front of it played as the file says. The times of name look-ups are this machine's.",
        robot.days
    );
    let more = robot.site.iter().filter(|site| site.full_handshake_more.or(site.answer_more).is_some());
    let more = more.map(|site| {
        let part = |what: &str, time: Option<tlsdyno_engine::time::Time>| {
            time.map(|time| format!("{what} {}", format_duration(time.ns() as f64)))
        };
        let parts = [part("full handshakes", site.full_handshake_more), part("answers", site.answer_more)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        format!("{}: {} more than this machine took, by the file.", site.name, parts.join(", "))
    });
    document.sections.insert(0, Section::default().text(text).notes(more.collect::<Vec<_>>()));
    document
}
