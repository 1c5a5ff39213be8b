//! What the simulation is asked: flags become a scenario, what it saw becomes a section.

use std::time::Instant;

use anyhow::Result;
use serde_json::{Value, json};
use tlsdyno_base::choice::choice;
use tlsdyno_base::units::{format_count, format_tenths};
use tlsdyno_engine::dispatch::Check;
use tlsdyno_engine::time::Time;
use tlsdyno_report::charts::{quantity, tooltip};
use tlsdyno_report::document::{Chart, Section};
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::kinds::flags::number;

use crate::costs::Costs;
use crate::measured::Place;
use crate::model::{Machines, Site};
use crate::page::Plan;
use crate::simulate::{Kept, Scenario, Seen, Storm, Told, Visits};

/// Of users who would come back for sure, so many do: pauses are exponential, and some are long.
const REUSE_MOST: f64 = 0.999;
/// A storm comes after so many lifetimes of a session, and is followed for as many more.
const BEFORE: f64 = 2.0;
const AFTER: f64 = 4.0;
/// What is simulated at most: a user takes 12 bytes, and twice that in a failover; a million requests take a second.
const USERS_MOST: u64 = 50_000_000;
const REQUESTS_MOST: f64 = 1e9;
/// Seconds between the requests of a connection.
const GAP_S: f64 = 1.0;

/// What is simulated.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Simulation")]
pub(crate) struct SimulateArgs {
    /// What the minutes after it cost, on the fewest machines that carry the site: restart, reload, deploy, failover
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = choice(Storm::ALL))]
    storm: Vec<Storm>,
    /// The site as it usually is, for so long in virtual time
    #[arg(long, value_name = "TIME")]
    simulate: Option<Time>,
    /// Users who come [default: as many as make --reuse of pauses by chance]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=USERS_MOST))]
    users: Option<u64>,
    /// For how long a session is kept
    #[arg(long, value_name = "TIME", default_value = "300s")]
    session_lifetime: Time,
    /// Sessions are in a store for so many on each machine, not in tickets (TLS 1.2)
    #[arg(long, value_name = "N")]
    session_store: Option<u32>,
    /// New ticket keys after so long; those before are still read once
    #[arg(long, value_name = "TIME")]
    pub rotate_keys: Option<Time>,
    /// One machine takes so many times as long as the others
    #[arg(long, value_name = "TIMES", default_value_t = 1.0)]
    #[arg(value_parser = number("a number of times from 0.01 to 1,000", 0.01..=1e3))]
    slow_machine: f64,
    /// Entries of a dispatcher's tables
    #[arg(long, value_name = "N", default_value_t = 1 << 17)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    table_entries: u32,
    /// What chance is drawn from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl SimulateArgs {
    /// Simulates what is asked for, and adds what was seen.
    pub fn add_to(&self, plan: &mut Plan<'_>) -> Result<()> {
        let Some(best) = plan.answered() else { return Ok(()) };
        let machines = best.machines;
        let usual = self.scenario(plan.site, plan.costs, machines);
        self.refuse_huge(&usual, plan.site.rate_per_s)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        if let Some(time) = self.simulate {
            let length_s = time.ns() as f64 / 1e9;
            let began = Instant::now();
            let seen = Scenario { length_s, ..usual.clone() }.run(threads);
            plan.more.push(of_usual(&seen, machines, length_s, began.elapsed().as_secs_f64()));
            plan.json.push(("simulated", json_of(&seen)));
        }
        let lifetime_s = f64::from(usual.lifetime_s);
        let storm_s = BEFORE * lifetime_s;
        let length_s = storm_s + AFTER * lifetime_s;
        let mut storms = Vec::new();
        for storm in &self.storm {
            let seen = Scenario { storm: Some((*storm, storm_s)), length_s, ..usual.clone() }.run(threads);
            let told = Told::of(&seen, storm_s);
            let title = format!("After a {}, on {}", storm.name(), machines.told());
            let section = Section::titled("storm", title).text(told.sentence(*storm));
            plan.more.push(section.charts(over_time(&seen, storm_s, storm.name())));
            storms.push(json!({"storm": storm.name(), "told": told, "seen": json_of(&seen)}));
        }
        if !storms.is_empty() {
            plan.json.push(("storms", storms.into()));
        }
        Ok(())
    }

    /// Refuses what is too large: a user takes memory, and a request time.
    fn refuse_huge(&self, of: &Scenario, rate_per_s: f64) -> Result<()> {
        let storms_s = (BEFORE + AFTER) * f64::from(of.lifetime_s) * self.storm.len() as f64;
        let requests = rate_per_s * (storms_s + self.simulate.map_or(0.0, |time| time.ns() as f64 / 1e9));
        let users = if requests > 0.0 { of.users } else { 0 };
        ensure_fault!(
            Usage,
            users <= USERS_MOST && requests <= REQUESTS_MOST,
            "{users} users and {requests:.1e} requests are too many to simulate (at most {USERS_MOST} and \
             {REQUESTS_MOST:.0e}): name fewer --users, a shorter time, or a tenth of the site and of its machines"
        );
        Ok(())
    }

    fn scenario(&self, site: &Site, costs: &Costs, machines: Machines) -> Scenario {
        let (ends, place) = machines.ends();
        let (cpus, speed) = site.cpus_and_speed();
        let point = costs.point();
        let s = |place, work| (point.cpu_ns(place, work) / 1e9 / speed).max(0.0);
        let [full, resumed] = [false, true].map(|resumes| s(place, site.opening(costs, place, resumes)));
        let behind = if machines.proxies == 0 { 0 } else { machines.servers };
        let behind_s = if behind == 0 { 0.0 } else { s(Place::Behind, site.request(costs, Place::Behind)) };
        let visits_per_s = site.rate_per_s / site.requests_per_connection;
        let lifetime_s = (self.session_lifetime.ns() / 1_000_000_000).max(1) as u32;
        // Of exponential pauses this part is shorter than the lifetime.
        let pause_s = -f64::from(lifetime_s) / (1.0 - site.reuse_fraction.min(REUSE_MOST)).ln();
        let users = self.users.unwrap_or((visits_per_s * pause_s).min(1e9) as u64).max(1);
        Scenario {
            ends,
            behind,
            cpus,
            opening_s: [full, if resumed > 0.0 { resumed } else { full }],
            request_s: s(place, site.request(costs, place)),
            behind_s,
            slow_times: self.slow_machine,
            policy: site.policy,
            shares_keys: site.shares_keys,
            kept: self.session_store.map_or(Kept::Tickets, Kept::Store),
            lifetime_s,
            rotation_s: self.rotate_keys.map_or(0, |time| (time.ns() / 1_000_000_000) as u32),
            table: self.table_entries as usize,
            remembers_s: lifetime_s,
            check: Check::default(),
            users,
            visits: Visits::Process(vec![visits_per_s]),
            requests: site.requests_per_connection.round() as u16,
            gap_s: GAP_S,
            length_s: BEFORE * f64::from(lifetime_s),
            storm: None,
            seed: self.seed,
        }
    }
}

fn ms(s: f64) -> String {
    format!("{} ms", format_tenths(1e3 * s))
}

fn of_usual(seen: &Seen, machines: Machines, length_s: f64, took_s: f64) -> Section {
    let busiest = seen.busy_s.iter().copied().fold(0.0, f64::max) / length_s;
    let [new, returning] = &seen.latencies;
    let facts = [
        ("connections", format_count(seen.connections)),
        ("hits", format_count(seen.hits)),
        ("sessions kept of those offered", format!("{:.1} %", 100.0 * seen.kept_share())),
        ("busiest machine by the mean", format!("{:.3}", seen.imbalance())),
        ("CPU of the busiest machine", format!("{:.1} %", 100.0 * busiest)),
        ("p99 of a new visitor", ms(new.quantile_s(0.99))),
        ("p99 of a returning visitor", ms(returning.quantile_s(0.99))),
        ("visits given up", format_count(seen.given_up)),
        ("things that happened", format!("{} in {took_s:.1} s", format_count(seen.events))),
    ];
    let rows = Rows::new(&facts).words("", |of| of.0.to_owned()).number("seen", |of| of.1.clone());
    let title = format!("Simulated {length_s:.0} s on {}", machines.told());
    Section::titled("simulated", title).rows(rows)
}

fn json_of(seen: &Seen) -> Value {
    json!({
        "interval_s": seen.interval_s, "intervals": seen.intervals, "connections": seen.connections,
        "hits": seen.hits, "offered": seen.offered, "kept": seen.kept, "retried": seen.retried,
        "given_up": seen.given_up, "lost": seen.lost, "events": seen.events,
        "by_machine": seen.by_machine, "busy_s": seen.busy_s,
        "p99_s": [seen.latencies[0].quantile_s(0.99), seen.latencies[1].quantile_s(0.99)],
    })
}

fn over_time(seen: &Seen, storm_s: f64, storm: &str) -> Option<Chart> {
    let row = |(at, of): (usize, &crate::simulate::Interval)| {
        let full = of.full as f64 / seen.interval_s;
        json!({"minute": (at as f64 * seen.interval_s - storm_s) / 60.0, "full": full})
    };
    let data: Vec<Value> = seen.intervals.iter().enumerate().map(row).collect();
    let body = json!({"mark": {"type": "line", "strokeWidth": 2}, "encoding": {
        "x": quantity("minute", "minutes after it"), "y": quantity("full", "full handshakes a second"),
        "tooltip": tooltip([("minute", "minute"), ("full", "per second")])}});
    let chart = Chart::new(format!("storm-{storm}"), 180, data, body)?;
    Some(chart.described("Full handshakes", "A line of full handshakes a second, which rises at minute 0."))
}
