//! The ranked list of remedies at the end of a report: what was measured to help, by how much, and what the server
//! needs for it.

use tlsdyno_record::model::{ConfigurationModel, Experiment};
use tlsdyno_record::store::Record;
use tlsdyno_runner::report::document::{Content, Item, Section};
use tlsdyno_runner::report::text::{capitalised, ratio_gain, ratio_times};
use tlsdyno_runner::run::own_command;
use tlsdyno_servers::directives::{self, Setting};
use tlsdyno_stats::{Direction, Metric, Ratio};
use tlsdyno_tls::Stage;

use super::findings::signs;
use crate::summary::Summary;
use crate::summary::accelerators::Prediction;
use crate::summary::findings::RemedyFinding;

/// Lines of the server's configuration that apply the remedy. Empty where no line does.
pub fn configuration_lines(remedy: &RemedyFinding, record: &Record) -> Vec<String> {
    let Some(experiment) = record.kind_part.of::<Experiment>() else {
        return Vec::new();
    };
    let model = |name: &str| experiment.configurations.iter().find(|model| model.name == name);
    match (model(&remedy.over), model(&remedy.configuration)) {
        (Some(before), Some(after)) => changed_lines(experiment, before, after),
        _ => Vec::new(),
    }
}

fn changed_lines(experiment: &Experiment, before: &ConfigurationModel, after: &ConfigurationModel) -> Vec<String> {
    let server = own_command::server_of(experiment);
    // What an installed server has stands in its files, not in the experiment.
    if experiment.server.config.is_some() {
        let settings = Setting::of_change(&after.tls);
        return settings.into_iter().flat_map(|setting| directives::lines(server, setting)).collect();
    }
    let (old, new) = (before.tls.applied(&experiment.tls), after.tls.applied(&experiment.tls));
    let mut lines = Vec::new();
    let mut changed =
        |is: bool, setting| lines.extend(is.then(|| directives::lines(server, setting)).into_iter().flatten());
    changed(old.version != new.version, Setting::of_version(new.version));
    if let Some(suite) = new.suite {
        changed(old.suite != new.suite, Setting::Suite(suite));
    }
    changed(old.group != new.group, Setting::Group(new.group));
    changed(old.certificate != new.certificate, Setting::Certificate(new.certificate()));
    changed(old.session_cache != new.session_cache, Setting::SessionCache(new.session_cache()));
    changed(old.tickets != new.tickets, Setting::Tickets(new.tickets));
    changed(old.ticket_keys != new.ticket_keys, Setting::TicketKeys(new.ticket_keys()));
    changed(old.early_data != new.early_data && new.early_data, Setting::EarlyData);
    changed(new.http2 && !old.http2, Setting::Http2);
    let count = |model: &ConfigurationModel| model.processors.unwrap_or_default().count;
    changed(count(before) != count(after), Setting::Processors(count(after)));
    if let Some(accelerator) = after.accelerator.as_ref().filter(|_| before.accelerator != after.accelerator) {
        changed(true, Setting::Accelerator { asynchronous: accelerator.asynchronous });
    }
    let plain_data = |model: &ConfigurationModel| model.noop.contains(Stage::Marshalling);
    changed(plain_data(after) && !plain_data(before), Setting::KernelTls);
    lines
}

/// `None` where the experiment names no remedy.
pub fn section(record: &Record, summary: &Summary) -> Option<Section> {
    let remedies = &summary.findings.remedies;
    if remedies.is_empty() {
        return None;
    }
    let intro = "By what each gains over the server as is, the largest first: in hits per second, or by CPU per hit \
                 where something else than the server limited these. Nothing is recommended that was not measured in \
                 this record.";
    let mut section = Section::titled("remedies", "What to do about it").text(intro);
    let measured = || remedies.iter().filter_map(|remedy| remedy.gain().map(|gain| (remedy, gain)));
    let of = |remedy: &RemedyFinding| (remedy.in_place, remedy.over_as_is);
    let kinds = [
        ((false, true), ""),
        ((false, false), "Over another base than the server as is, so in no ranking with the above:"),
        ((true, false), "In place already, and worth keeping by so much:"),
    ];
    for (kind, head) in kinds {
        let ranked = kind == (false, true);
        let of_kind = measured().filter(|(remedy, _)| of(remedy) == kind).zip(1..);
        let items: Vec<Item> = of_kind
            .map(|((remedy, gain), place)| item(remedy, gain, ranked.then_some(place), summary, record))
            .collect();
        if !items.is_empty() {
            section = if head.is_empty() { section } else { section.text(head) };
            section = section.with(Content::Items(items));
        }
    }
    let mut notes: Vec<String> = signs(remedies.iter().filter_map(|of| of.ratio)).into_iter().collect();
    for (by_construction, why) in [(true, "A quota brings its own ratio"), (false, "Not measured here")] {
        let is_told = |of: &&RemedyFinding| of.told_by.is_none() && of.by_construction == by_construction;
        let names: Vec<&str> = remedies.iter().filter(is_told).map(|of| of.name.as_str()).collect();
        notes.extend((!names.is_empty()).then(|| format!("{why}, so not recommended: {}.", names.join(", "))));
    }
    Some(section.notes(notes))
}

fn item(remedy: &RemedyFinding, gain: Ratio, place: Option<u32>, summary: &Summary, record: &Record) -> Item {
    let server = record
        .kind_part
        .of::<Experiment>()
        .map_or("the server", |experiment| own_command::server_of(experiment).name());
    let doubt = remedy.is_doubtful();
    let word = match gain.direction {
        Direction::Bigger if doubt => " – doubtful",
        Direction::Bigger => "",
        Direction::Smaller => " – a loss",
        Direction::Undecided => " – undecided",
    };
    let bound = if remedy.bound { " (a bound: it cannot be had itself)" } else { "" };
    let nothing_to_do = gain.direction == Direction::Smaller || remedy.in_place;
    let lines = if nothing_to_do { Vec::new() } else { configuration_lines(remedy, record) };
    let mut text = vec![both_ways(remedy)];
    text.extend(predicted(remedy, summary));
    text.extend(doubt.then(|| capitalised(&doubtful(remedy)) + "."));
    if lines.is_empty() && !nothing_to_do {
        text.push(format!("No line of {server}'s configuration does this."));
    }
    let place = place.map_or_else(String::new, |place| format!("{place}. "));
    Item {
        head: format!("{place}{}{bound}: {}{word}", capitalised(&remedy.name), gain_in_words(remedy, &gain)),
        text,
        code: lines,
        muted: gain.direction != Direction::Bigger || doubt,
    }
}

/// `+44 % [+40, +48] hits/s`, or the same by CPU per hit.
pub(super) fn gain_in_words(remedy: &RemedyFinding, gain: &Ratio) -> String {
    let of = if remedy.told_by == Some(Metric::Cpu) { "hits per CPU second" } else { "hits/s" };
    format!("{} {of}", ratio_gain(gain))
}

/// By hits per second and by CPU per hit, the deciding one first.
fn both_ways(remedy: &RemedyFinding) -> String {
    let over = &remedy.over;
    let said = match (remedy.told_by, remedy.ratio, remedy.by_cpu) {
        (Some(Metric::Cpu), by_hits, Some(cpu)) => {
            let hits = by_hits.map(|hits| format!("; in hits/s {}, {}", ratio_times(&hits), ratio_gain(&hits)));
            format!("{} the hits of \"{over}\" for the same CPU{}", ratio_times(&cpu), hits.unwrap_or_default())
        }
        (_, Some(hits), by_cpu) => {
            let cpu = by_cpu.map(|cpu| format!("; from CPU per hit {}", ratio_gain(&cpu)));
            format!("{} the hits/s of \"{over}\"{}", ratio_times(&hits), cpu.unwrap_or_default())
        }
        _ => "not measured".to_owned(),
    };
    capitalised(&said) + "."
}

/// Predicted gain of a remedy, beside the measured one.
fn predicted(remedy: &RemedyFinding, summary: &Summary) -> Option<String> {
    let of = |prediction: &&Prediction| {
        (&prediction.configuration, &prediction.over) == (&remedy.configuration, &remedy.over)
    };
    let by_law = summary.findings.accelerators.iter().find(of).and_then(|prediction| prediction.by.first());
    let by_law =
        by_law.map(|by| format!("Predicted by Amdahl's law from its share of CPU: {}.", ratio_gain(&by.predicted)));
    let contended = remedy.contention.map_or_else(String::new, |of| {
        let [value, low, high] = [of.value, of.low, of.high].map(|part| format!("{:.1}", 100.0 * part));
        format!(" Contended by the universal scalability law: {value} % [{low}, {high}] of the work.")
    });
    by_law.or(remedy.processors_times.map(|times| {
        format!("Predicted if all of it scales: {:+.0} %, and no more.{contended}", 100.0 * (times - 1.0))
    }))
}

/// Reason to doubt a remedy's gain.
pub(super) fn doubtful(remedy: &RemedyFinding) -> String {
    let times = remedy.processors_times.unwrap_or(1.0);
    format!(
        "{times:.1} times the processors cannot serve more than {times:.1} times the hits by themselves: something \
         else changed too, such as other load on the machine or requests that waited"
    )
}
