//! What a run was asked to do, in one line.

use tlsdyno_base::units::{format_count, format_duration, format_of, format_short};
use tlsdyno_engine::load::{Arrivals, Pacing, Plan, Resumption};

pub fn asked(plan: &Plan) -> String {
    let mut words = vec![pacing(plan.pacing), connections(plan)];
    if let Some(tls) = &plan.target.tls {
        words.extend(resumption(plan.resumption));
        words.push(format!("effort {}", tls.settings().effort));
    }
    words.join(", ")
}

fn pacing(pacing: Pacing) -> String {
    match pacing {
        Pacing::Closed => "closed loop".to_owned(),
        Pacing::Pauses(pause) => format!("closed loop, pauses {}", format_duration(pause.mean_ns as f64)),
        Pacing::Open(rate) => {
            let spread = if rate.arrivals == Arrivals::Poisson { " (Poisson)" } else { "" };
            format!("open loop at {} /s{spread}", rate.per_second)
        }
        Pacing::Recorded(1.0) => "at the times of the trace".to_owned(),
        Pacing::Recorded(speed) => format!("at the times of the trace ×{speed}"),
    }
}

fn connections(plan: &Plan) -> String {
    let total = plan.connections.total;
    let noun = if total == 1 { "connection" } else { "connections" };
    let each = match plan.connections.requests_each {
        Some(1) => " of one request each".to_owned(),
        Some(requests) => format!(" of {} each", format_of(f64::from(requests), "request")),
        None => " kept".to_owned(),
    };
    format!("{} {noun}{each}", format_count(u64::from(total)))
}

fn resumption(resumption: Resumption) -> Option<String> {
    match resumption {
        // Kept connections, where the question does not arise, are the usual case.
        Resumption::Never => None,
        Resumption::Always => Some("resuming where a session is held".to_owned()),
        Resumption::Share(_) | Resumption::ShareOfEach(_) => {
            resumption.percent().map(|percent| format!("{} % resumed", format_short(percent)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::screen::view::tests::plan;
    use tlsdyno_engine::load::Rate;

    #[test]
    fn a_plan_reads_as_it_was_asked_for() {
        let mut plan = plan("https://localhost/");
        assert_eq!(asked(&plan), "closed loop, 64 connections kept, effort lean");
        plan.resumption = Resumption::Share(0.333);
        plan.connections.requests_each = Some(1);
        plan.pacing = Pacing::Open(Rate { per_second: 500.0, arrivals: Arrivals::Poisson, seed: 1 });
        assert_eq!(
            asked(&plan),
            "open loop at 500 /s (Poisson), 64 connections of one request each, 33.3 % resumed, effort lean"
        );
        plan.target.tls = None;
        plan.connections.total = 1;
        plan.connections.requests_each = Some(1000);
        plan.pacing = Pacing::Recorded(10.0);
        assert_eq!(asked(&plan), "at the times of the trace ×10, 1 connection of 1,000 requests each");
    }

    #[test]
    fn percentages_are_as_short_as_they_can_be() {
        assert_eq!([0.0, 50.0, 33.3, 99.95].map(format_short), ["0", "50", "33.3", "99.95"]);
    }
}
