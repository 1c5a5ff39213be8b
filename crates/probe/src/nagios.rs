//! What monitoring systems of the Nagios family read: one line, and exit codes of their own.

use tlsdyno_base::units::format_duration;

use super::round::{Resumption, Round};

/// Days left of a certificate below which there is a warning.
pub const CERTIFICATE_DAYS_MIN: i64 = 14;

/// The states, with the exit codes of the Monitoring Plugins Development Guidelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Ok = 0,
    /// It works, but somebody should look.
    Warning = 1,
    /// It does not work.
    Critical = 2,
}

impl State {
    pub fn of(round: &Round) -> State {
        let doubtful = !round.facts.certificate_fault.is_empty()
            || round.certificate_days_left().is_some_and(|days| days < CERTIFICATE_DAYS_MIN);
        match (round.fault.is_none(), doubtful) {
            (false, _) => State::Critical,
            (true, true) => State::Warning,
            (true, false) => State::Ok,
        }
    }

    fn name(self) -> &'static str {
        match self {
            State::Ok => "OK",
            State::Warning => "WARNING",
            State::Critical => "CRITICAL",
        }
    }
}

/// The line about all rounds, with performance data behind the bar, and the worst of their states.
pub fn line(rounds: &[Round]) -> (String, State) {
    let worst = rounds.iter().map(State::of).max().unwrap_or(State::Ok);
    let texts: Vec<String> = rounds.iter().map(text).collect();
    let data: Vec<String> = rounds.iter().flat_map(performance).collect();
    (format!("TLS {} - {} | {}", worst.name(), texts.join("; "), data.join(" ")), worst)
}

fn text(round: &Round) -> String {
    let site = &round.site;
    if let Some(fault) = &round.fault {
        return format!("{site} {} {}: {}", fault.step, fault.kind, fault.text);
    }
    let time = |visit: Option<super::round::Visit>| {
        visit.map_or("never".to_owned(), |visit| format_duration(visit.handshake_ns as f64))
    };
    let resumed = match round.resumption {
        Resumption::Accepted => format!("resumed {}", time(round.resumed)),
        other => format!("resumption {other}"),
    };
    let mut text = format!("{site} full handshake {}, {resumed}", time(round.full));
    if let Some(days) = round.certificate_days_left() {
        text += &format!(", certificate {days} days");
    }
    if !round.facts.certificate_fault.is_empty() {
        text += &format!(" ({})", round.facts.certificate_fault);
    }
    text
}

/// `'label'=value[unit]` in seconds, as the guidelines have it; a quote in a label is doubled.
fn performance(round: &Round) -> Vec<String> {
    let site = round.site.replace('\'', "''").replace('=', "_");
    let numbers = [
        ("lookup", round.lookup_ns),
        ("tcp", round.tcp_ns),
        ("full", round.full.map(|visit| visit.handshake_ns)),
        ("resumed", round.resumed.map(|visit| visit.handshake_ns)),
        ("first_byte", round.full.map(|visit| visit.first_byte_ns)),
        ("whole", round.full.map(|visit| visit.whole_ns)),
    ];
    let known = numbers.into_iter().filter_map(|(name, ns)| Some((name, ns?)));
    known.map(|(name, ns)| format!("'{site} {name}'={:.6}s", ns as f64 / 1e9)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Fault, FaultKind};
    use crate::round::{Facts, Visit};

    #[test]
    fn the_worst_state_counts_and_numbers_are_seconds() {
        let facts = Facts { certificate_until_unix_s: 86_400 * 13, ..Facts::default() };
        let full = Some(Visit { handshake_ns: 1_500_000, ..Visit::default() });
        let good = Round { site: "https://a/'".to_owned(), full, ..Round::default() };
        let old = Round { facts, ..good.clone() };
        let fault = Fault { step: "full".to_owned(), kind: FaultKind::Alert, text: "no".to_owned() };
        let bad = Round { fault: Some(fault), ..good.clone() };
        assert_eq!([&good, &old, &bad].map(State::of), [State::Ok, State::Warning, State::Critical]);
        let (text, state) = line(&[good, old]);
        assert_eq!(state, State::Warning);
        assert!(text.starts_with("TLS WARNING - https://a/' full handshake 1.50 ms, resumption untried; "), "{text}");
        assert!(text.contains("certificate 13 days") && text.contains(" | 'https://a/'' full'=0.001500s "), "{text}");
    }
}
