//! The ranked list of remedies at the end of a report: what was measured to help, by how much, and what the server
//! needs for it.

use tlsdyno_tls::Stage;

use super::document::{Content, Item, Section};
use super::findings::signs;
use super::text::{capitalised, ratio_gain, ratio_times};
use crate::model::{ConfigurationModel, Experiment};
use crate::servers::directives::{self, Setting};
use crate::stats::Direction;
use crate::stats::findings::RemedyFinding;
use crate::stats::{Ratio, Summary};
use crate::store::Record;

/// What the server needs to have what this remedy changes, as lines of its configuration. Empty where no line does it.
pub fn configuration_lines(remedy: &RemedyFinding, record: &Record) -> Vec<String> {
    let Some(experiment) = &record.experiment else {
        return Vec::new();
    };
    let model = |name: &str| experiment.configurations.iter().find(|model| model.name == name);
    match (model(&remedy.over), model(&remedy.configuration)) {
        (Some(before), Some(after)) => changed_lines(experiment, before, after),
        _ => Vec::new(),
    }
}

fn changed_lines(experiment: &Experiment, before: &ConfigurationModel, after: &ConfigurationModel) -> Vec<String> {
    let server = experiment.server.kind;
    let (old, new) = (before.tls.applied(&experiment.tls), after.tls.applied(&experiment.tls));
    let mut lines = Vec::new();
    let mut changed =
        |is: bool, setting| lines.extend(is.then(|| directives::lines(server, setting)).into_iter().flatten());
    changed(old.version != new.version, Setting::Version(new.version));
    if let Some(suite) = new.suite {
        changed(old.suite != new.suite, Setting::Suite(suite));
    }
    changed(old.certificate != new.certificate, Setting::Certificate(new.certificate));
    changed(old.session_cache != new.session_cache, Setting::SessionCache(new.session_cache));
    changed(old.tickets != new.tickets, Setting::Tickets(new.tickets));
    changed(old.ticket_keys != new.ticket_keys, Setting::TicketKeys(new.ticket_keys));
    changed(old.early_data != new.early_data && new.early_data, Setting::EarlyData);
    let count = |model: &ConfigurationModel| model.processors.unwrap_or_default().count;
    changed(count(before) != count(after), Setting::Processors(count(after)));
    if let Some(accelerator) = after.accelerator.as_ref().filter(|_| before.accelerator != after.accelerator) {
        changed(true, Setting::Accelerator { asynchronous: accelerator.asynchronous });
    }
    let plain_data = |model: &ConfigurationModel| model.noop.contains(Stage::Marshalling);
    changed(plain_data(after) && !plain_data(before), Setting::KernelTls);
    lines
}

/// The list. `None` where the experiment names no remedy.
pub fn section(record: &Record, summary: &Summary) -> Option<Section> {
    let remedies = &summary.findings.remedies;
    if remedies.is_empty() {
        return None;
    }
    let server = record.experiment.as_ref().map_or("the server", |experiment| experiment.server.kind.name());
    let measured = || remedies.iter().filter_map(|remedy| remedy.ratio.map(|ratio| (remedy, ratio)));
    let items = measured().zip(1..).map(|((remedy, ratio), place)| item(remedy, ratio, place, server, record));
    let missing: Vec<&str> = remedies.iter().filter(|of| of.ratio.is_none()).map(|of| of.name.as_str()).collect();
    let mut notes: Vec<String> = signs(remedies.iter().filter_map(|of| of.ratio)).into_iter().collect();
    if !missing.is_empty() {
        notes.push(format!("Not measured here, so not recommended: {}.", missing.join(", ")));
    }
    let intro = "By what each gains in hits per second, the largest first. Nothing is recommended that was not \
                 measured in this record.";
    let section = Section::titled("remedies", "What to do about it").text(intro);
    Some(section.with(Content::Items(items.collect())).notes(notes))
}

fn item(remedy: &RemedyFinding, ratio: Ratio, place: usize, server: &str, record: &Record) -> Item {
    let word = match ratio.direction {
        Direction::Bigger => "",
        Direction::Smaller => " – a loss",
        Direction::Undecided => " – undecided",
    };
    let bound = if remedy.bound { " (a bound: it cannot be had itself)" } else { "" };
    let cpu = remedy.by_cpu.map_or_else(String::new, |cpu| format!("; from CPU per hit {}", ratio_gain(&cpu)));
    let loss = ratio.direction == Direction::Smaller;
    let lines = if loss { Vec::new() } else { configuration_lines(remedy, record) };
    let mut text = vec![format!("{} the hits/s of \"{}\"{cpu}.", capitalised(&ratio_times(&ratio)), remedy.over)];
    if lines.is_empty() && !loss {
        text.push(format!("No line of {server}'s configuration does this."));
    }
    Item {
        head: format!("{place}. {}{bound}: {} hits/s{word}", capitalised(&remedy.name), ratio_gain(&ratio)),
        text,
        code: lines,
        muted: ratio.direction != Direction::Bigger,
    }
}
