//! What rounds of weeks come to: Goldberg's tables, and what else a reader wants to know of the sites.

use std::panic::resume_unwind;
use std::thread;

use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::units::{
    NONE, format_count, format_date, format_day, format_duration, format_interval, format_interval_with, format_percent,
};
use tlsdyno_report::document::{Content, Document, Item, Medium, Section};
use tlsdyno_report::rows::Rows;

use super::charts;
use crate::AGES_S;
use crate::summary::{SHOWN_BY_HOUR, SiteSummary};

/// So many sites have charts: a page of a thousand would not open.
const CHARTED: usize = 20;
/// So many changes of a site are told.
const CHANGES_TOLD: usize = 12;

/// The report about these sites with its charts, which take longer than all the rest.
pub fn page(sites: &[SiteSummary]) -> Document {
    let mut page = document(sites);
    thread::scope(|scope| {
        let charts = |(index, site)| scope.spawn(move || charts::of_site(index, site));
        let charts: Vec<_> = sites.iter().enumerate().take(CHARTED).map(charts).collect();
        let sections = charts.into_iter().filter_map(|of| of.join().unwrap_or_else(|panic| resume_unwind(panic)));
        page.sections.extend(sections);
    });
    if sites.len() > CHARTED {
        let text = format!("Charts are drawn of the first {CHARTED} sites; --site chooses others.");
        page.sections.push(Section::default().text(text).on(Medium::Page));
    }
    page
}

pub fn document(sites: &[SiteSummary]) -> Document {
    let rounds: u64 = sites.iter().map(|site| site.tally.made_count).sum();
    let ends = sites.iter().filter_map(|site| site.hours_unix_s);
    let range = ends.reduce(|all, next| (all.0.min(next.0), all.1.max(next.1)));
    let meta = range.map_or_else(String::new, |(first, last)| {
        format!("{} rounds, {} to {}", format_count(rounds), format_date(first), format_date(last))
    });
    let sections =
        vec![medians(sites), sums(sites), resumption(sites), survival(sites), table_of_sites(sites), changes(sites)];
    Document {
        title: "What does session resumption save users?".to_owned(),
        meta,
        answer: answer_of_all(sites),
        sections,
        ..Document::default()
    }
}

fn answer(site: &SiteSummary) -> String {
    let name = &site.site;
    match site.number("sum_of_medians_saved_percent") {
        Some(saved) => format!(
            "A resumed session saves {} {} of a visit to {name}: the handshake takes {} in place of {}.",
            format_percent(saved.value),
            format_interval(saved.low, saved.high),
            time(site, "resumed_ns"),
            time(site, "full_ns"),
        ),
        None if site.tally.made_count == 0 => format!("There are no rounds of {name}."),
        None if site.number("full_ns").is_none() => format!("No round at {name} succeeded."),
        None if site.tally.offered_count == 0 => format!("{name} never gave a session."),
        None => format!("{name} never accepted a session."),
    }
}

/// The answer for all sites; many are put together.
fn answer_of_all(sites: &[SiteSummary]) -> String {
    const TOLD_ALONE: usize = 3;
    let saved = |site: &SiteSummary| Some((site.number("sum_of_medians_saved_percent")?.value, site.site.clone()));
    let mut all: Vec<(f64, String)> = sites.iter().filter_map(saved).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    match (all.first(), all.last()) {
        (Some((least, at)), Some((most, there))) if sites.len() > TOLD_ALONE => format!(
            "A resumed session saves between {} of a visit ({at}) and {} ({there}); {} of {} sites resume.",
            format_percent(*least),
            format_percent(*most),
            all.len(),
            sites.len()
        ),
        _ => sites.iter().map(answer).collect::<Vec<_>>().join(" "),
    }
}

fn time(site: &SiteSummary, number: &str) -> String {
    site.number(number).map_or(NONE.to_owned(), |estimate| format_duration(estimate.value))
}

/// A number of a site with its interval.
fn times(site: &SiteSummary, number: &str) -> [String; 2] {
    let ends = |of: Estimate| format_interval_with(of.low, of.high, format_duration);
    [time(site, number), site.number(number).map_or(NONE.to_owned(), ends)]
}

fn share(estimate: Option<Estimate>) -> String {
    let text = |of: Estimate| format!("{} {}", format_percent(of.value), format_interval(of.low, of.high));
    estimate.map_or(NONE.to_owned(), text)
}

/// What stands in place of a time of resumed handshakes where there was none.
fn resumed(site: &SiteSummary) -> String {
    match site.tally.accepted_count {
        0 if site.tally.offered_count > 0 => "never accepted".to_owned(),
        0 if site.number("full_ns").is_some() => "never given".to_owned(),
        _ => time(site, "resumed_ns"),
    }
}

/// Goldberg's Table 2.
fn medians(sites: &[SiteSummary]) -> Section {
    let table = Rows::new(sites)
        .words("site", |site| site.site.clone())
        .number("T: TCP", |site| time(site, "tcp_ns"))
        .pair("S: full", |site| times(site, "full_ns"))
        .pair("S: resumed", |site| [resumed(site), times(site, "resumed_ns")[1].clone()])
        .number("H: answer", |site| time(site, "whole_ns"))
        .number("W = T + S + H", |site| time(site, "sum_of_medians_without_ns"))
        .number("C, resumed", |site| time(site, "sum_of_medians_with_ns"))
        .number("(W − C)/W", |site| share(site.number("sum_of_medians_saved_percent")));
    let note = "As in Table 2 of Goldberg et al. (1998): W and C are sums of medians. Intervals are of 95 %, by a \
                bootstrap over blocks of rounds that follow each other; a site needs five blocks for one.";
    Section::titled("medians", "Medians, and their sums").rows(table).notes([note.to_owned()])
}

/// Medians of sums that are made in each round, which the paper does not have.
fn sums(sites: &[SiteSummary]) -> Section {
    let table = Rows::new(sites)
        .words("site", |site| site.site.clone())
        .pair("W", |site| times(site, "median_of_sums_without_ns"))
        .pair("C", |site| times(site, "median_of_sums_with_ns"))
        .number("(W − C)/W", |site| share(site.number("median_of_sums_saved_percent")));
    let note = "W and C added up in each round, and then the median: what half of the visits stay below. The paper has \
                no such table.";
    Section::titled("sums", "Medians of sums").rows(table).notes([note.to_owned()])
}

fn resumption(sites: &[SiteSummary]) -> Section {
    let table = Rows::new(sites)
        .words("site", |site| site.site.clone())
        .number("rounds", |site| format_count(site.tally.made_count))
        .number("missed", |site| format_count(site.tally.missed_count))
        .words("faults", faults)
        .number("sessions offered", |site| format_count(site.tally.offered_count))
        .number("accepted", |site| format_count(site.tally.accepted_count))
        .number("share", |site| share(site.accepted_percent))
        .words("backends", backends);
    let note = "A session is offered within the round that it comes from. N backends that do not share sessions, and \
                connections that go to any of them, accept 1 in N.";
    Section::titled("resumption", "Rounds, and what became of sessions").rows(table).notes([note.to_owned()])
}

/// Does the site still take a session after a minute, five, an hour?
fn survival(sites: &[SiteSummary]) -> Section {
    let known: Vec<&SiteSummary> = sites.iter().filter(|site| !site.kept.is_empty()).collect();
    let note = "A session that a round had left is offered again in the first round in which it is that old, unless \
                its lifetime is over.";
    let note = (!known.is_empty()).then(|| note.to_owned());
    let kept = |site: &SiteSummary, age_s: u32| {
        let kept = site.kept.iter().find(|kept| kept.age_s == age_s);
        kept.map_or(NONE.to_owned(), |kept| {
            format!("{} of {}: {}", kept.accepted_count, kept.offered_count, share(kept.percent))
        })
    };
    let table = Rows::new(known).words("site", |site| site.site.clone()).number("lifetime, as the site says", |site| {
        format!("{} s", format_count(u64::from(site.facts.session_lifetime_s)))
    });
    let table = AGES_S.into_iter().fold(table, |table, age_s| {
        table.number(format!("after {}", format_duration(f64::from(age_s) * 1e9)), |site| kept(site, age_s))
    });
    Section::titled("survival", "How long sessions live").rows(table).notes(note)
}

fn faults(site: &SiteSummary) -> String {
    let kinds: Vec<String> =
        site.faults.iter().map(|(kind, count)| format!("{kind} {}", format_count(*count))).collect();
    if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") }
}

/// What the share of accepted sessions says of the machines behind a name.
fn backends(site: &SiteSummary) -> String {
    let Some(share) = site.accepted_percent else {
        return NONE.to_owned();
    };
    if share.high >= 97.0 {
        return "share sessions, or there is one".to_owned();
    }
    if site.tally.accepted_count == 0 {
        return "accept none".to_owned();
    }
    let n = |percent: f64| format!("{:.1}", 100.0 / percent);
    format!("as {} [{}, {}] that share none", n(share.value), n(share.high), n(share.low))
}

/// Goldberg's Table 1.
fn table_of_sites(sites: &[SiteSummary]) -> Section {
    let key = |site: &SiteSummary| format!("{} – {}", known(&site.facts.key), known(&site.facts.suite));
    let table = Rows::new(sites)
        .words("site", |site| site.site.clone())
        .words("server", |site| known(&site.facts.server))
        .words("public key – encryption", key)
        .words("TLS", |site| known(&site.facts.version))
        .words("session", session)
        .words("address", |site| known(&site.facts.address))
        .words("certificate", certificate);
    Section::titled("sites", "The sites").rows(table)
}

fn known(text: &str) -> String {
    if text.is_empty() { NONE.to_owned() } else { text.to_owned() }
}

fn session(site: &SiteSummary) -> String {
    match site.facts.session.as_str() {
        "" => "none".to_owned(),
        kind => format!("{kind}, {} s", format_count(u64::from(site.facts.session_lifetime_s))),
    }
}

fn certificate(site: &SiteSummary) -> String {
    let until = match i64::try_from(site.facts.certificate_until_unix_s) {
        Ok(until @ 1..) => format!("until {}", format_day(until)),
        _ => NONE.to_owned(),
    };
    match site.facts.certificate_fault.as_str() {
        "" => until,
        fault => format!("{until}; not trusted: {fault}"),
    }
}

fn changes(sites: &[SiteSummary]) -> Section {
    let mut items = Vec::new();
    for site in sites {
        let older = site.changes.len().saturating_sub(CHANGES_TOLD);
        items.extend(site.changes[older..].iter().map(|change| Item {
            head: format!("{} {}: {}", format_date(change.hour_unix_s), site.site, change.what),
            text: vec![format!("{} became {}", known(&change.from), known(&change.to))],
            ..Item::default()
        }));
        if older > 0 {
            let head = format!("{}: {} changes before", site.site, format_count(older as u64));
            items.push(Item { head, muted: true, ..Item::default() });
        }
    }
    let section = Section::titled("changes", "What changed");
    if items.is_empty() { section } else { section.with(Content::Items(items)) }
}

/// A line for each site and hour, or day.
pub fn csv(sites: &[SiteSummary]) -> String {
    const QUANTILES: [(&str, f64); 3] = [("p5", 0.05), ("p50", 0.5), ("p95", 0.95)];
    let columns = SHOWN_BY_HOUR.iter().flat_map(|of| QUANTILES.map(|(name, _)| format!("{of}_{name}_ns")));
    let mut text = "site,from_unix_s,length_s,made_count,missed_count,offered_count,accepted_count,".to_owned();
    text += &(columns.collect::<Vec<_>>().join(",") + "\n");
    for site in sites {
        let name = site.site.replace('"', "\"\"");
        for hour in &site.hours {
            let counts =
                [hour.tally.made_count, hour.tally.missed_count, hour.tally.offered_count, hour.tally.accepted_count];
            let counts = counts.map(|count| count.to_string()).join(",");
            let times = SHOWN_BY_HOUR.iter().flat_map(|of| {
                QUANTILES.map(|(_, q)| hour.measures.quantile(*of, q).map_or(String::new(), |ns| ns.to_string()))
            });
            let times = times.collect::<Vec<_>>().join(",");
            text += &format!("\"{name}\",{},{},{counts},{times}\n", hour.hour_unix_s, site.by.length_s());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Entry;
    use crate::round::{Resumption, Round, Visit};
    use crate::store::Hour;
    use tlsdyno_report::terminal::{Style, text};

    fn site(name: &str, resumption: Resumption, full: bool) -> SiteSummary {
        let visit = |ms: u64| Some(Visit { handshake_ns: ms * 1_000_000, whole_ns: 20_000_000, ..Visit::default() });
        let round = Round {
            tcp_ns: full.then_some(10_000_000),
            full: visit(40).filter(|_| full),
            resumed: visit(10).filter(|_| resumption == Resumption::Accepted),
            resumption,
            ..Round::default()
        };
        SiteSummary::of(name, vec![Hour::of(&Entry::made("run", 0, round))], Vec::new())
    }

    #[test]
    fn sites_without_resumed_times_say_why() {
        let sites = [
            site("a", Resumption::Accepted, true),
            site("b", Resumption::Rejected, true),
            site("c", Resumption::NotGiven, true),
        ];
        let shown = text(&document(&sites), Style::PLAIN);
        for part in ["saves 42.9 %", "b never accepted a session.", "c never gave a session.", "never given"] {
            assert!(shown.contains(part), "{part:?} is not in\n{shown}");
        }
        let four = [&sites[..], &[site("d", Resumption::Untried, false)]].concat();
        assert!(document(&four).answer.contains("1 of 4 sites resume"), "{}", document(&four).answer);
        assert!(text(&document(&four[3..]), Style::PLAIN).contains("No round at d succeeded."));
        assert_eq!(csv(&sites).lines().count(), 4);
    }
}
