//! Sizes by equations: what machines of a site are used, how many there must be, and how long visitors wait.

use serde::Serialize;
use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::verdict::Lies;
use tlsdyno_engine::dispatch::Policy;

use crate::costs::{Costs, Drawn, KILOBYTES_APART};
use crate::measured::{Place, Term, Work};
use crate::queue::Queue;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Site {
    pub rate_per_s: f64,
    pub requests_per_connection: f64,
    /// Part of the connections that offer a session, 0 to 1.
    pub reuse_fraction: f64,
    /// Kilobytes of a response; `None`: as measured.
    pub kilobytes: Option<f64>,
    pub cpus: f64,
    /// How connections come to the machines that end TLS.
    #[serde(skip)]
    pub policy: Policy,
    /// These machines share the keys of their tickets.
    pub shares_keys: bool,
}

/// The fewest servers are looked for up to two to the power of so many.
const SERVERS_BITS: u32 = 21;

/// Whether machines that are used so much carry their site: all of the interval lies below full.
pub fn is_carried(used: Estimate) -> bool {
    Lies::new(used.interval(), [1.0, 1.0]) == Lies::Below
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Machines {
    pub servers: u32,
    /// Proxies that end TLS before them; 0: the servers end it.
    pub proxies: u32,
}

#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    pub machines: Machines,
    /// Part of the offered sessions that meet a machine that knows them.
    pub kept_fraction: f64,
    /// CPU time of all machines for a request, nanoseconds, without the dispatcher's.
    pub cpu_ns_per_hit: Estimate,
    /// Part of the CPU time of the fullest machines that the site takes.
    pub used: Estimate,
    /// Requests a second at which they are full.
    pub capacity_per_s: Estimate,
    /// CPUs of a dispatcher before them; `None`: there is none, or its cost is not known.
    pub dispatcher_cpus: Option<Estimate>,
    /// A visitor who comes for the first time, and one who comes back.
    pub visitors: [Latency; 2],
    /// What the machines cost for an hour; `None`: no price was given.
    pub price_per_h: Option<f64>,
}

/// How long machines take for the first response of a visitor, seconds, round trips not included.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    pub mean_s: Estimate,
    /// 99 of a hundred take no longer.
    pub p99_s: Estimate,
}

impl Machines {
    pub fn count(self) -> u32 {
        self.servers + self.proxies
    }

    /// The number of machines that end TLS, and where what they do is measured.
    pub fn ends(self) -> (u32, Place) {
        if self.proxies == 0 { (self.servers, Place::Server) } else { (self.proxies, Place::Proxy) }
    }

    pub fn told(self) -> String {
        let many = |count: u32, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
        let servers = many(self.servers, "server", "servers");
        match self.proxies {
            0 => servers,
            proxies => format!("{}, {servers}", many(proxies, "proxy", "proxies")),
        }
    }
}

impl Site {
    /// Part of the offered sessions that are kept, where so many machines end TLS. A blind policy meets the machine
    /// that knows a session by chance.
    pub fn kept(&self, machines: Machines) -> f64 {
        let is_blind = matches!(self.policy, Policy::RoundRobin | Policy::LeastConnections | Policy::Lard);
        if is_blind && !self.shares_keys { 1.0 / f64::from(machines.ends().0) } else { 1.0 }
    }

    /// Kinds of work that this site has on some machines.
    pub fn needs(&self, machines: Machines, costs: &Costs) -> Vec<(Place, Term)> {
        let place = machines.ends().1;
        let resumed = self.reuse_fraction * self.kept(machines);
        let included = costs.at(place).and_then(|of| of.requests_included());
        // A connection that was measured with its requests tells nothing of connections with more or fewer.
        let is_other = included.is_some_and(|included| (self.requests_per_connection / included - 1.0).abs() > 0.05);
        let mut needs = Vec::new();
        needs.extend((resumed < 1.0).then_some((place, Term::Full)));
        needs.extend((resumed > 0.0).then_some((place, Term::Resumed)));
        needs.extend(is_other.then_some((place, Term::Request)));
        // Nor does one page tell of larger ones, nor do several of one without what a kilobyte costs.
        let is_other = costs.at(place).is_some_and(|of| {
            let [least, most] = of.range.kilobytes;
            let size = self.kilobytes.unwrap_or(least);
            most - least > KILOBYTES_APART || (size - least).abs() > KILOBYTES_APART
        });
        needs.extend(is_other.then_some((place, Term::Kilobyte)));
        needs.extend((machines.proxies > 0).then_some((Place::Behind, Term::Request)));
        needs
    }

    /// Sentences on what of the predictions lies beyond what was measured.
    pub fn extrapolates(&self, costs: &Costs, predictions: &[Prediction]) -> Vec<String> {
        let mut said = Vec::new();
        for place in [Place::Server, Place::Proxy] {
            let of_place = || predictions.iter().filter(|of| of.machines.ends().1 == place);
            let Some(of) = costs.at(place).filter(|_| of_place().next().is_some()) else { continue };
            let told = place.told();
            let mut beyond = |value: f64, [low, high]: [f64; 2], what: &str, unit: &str| {
                let slack = 0.02 * (high - low).abs().max(0.1 * high.abs());
                if low.is_finite() && (value < low - slack || value > high + slack) {
                    let [value, low, high] = [value, low, high].map(tlsdyno_base::units::format_short);
                    said.push(format!(
                        "{what} of {value}{unit} is extrapolation: at the {told} {low} to {high}{unit} was measured"
                    ));
                }
            };
            let resumed = of.range.resumed_fraction.map(|part| 100.0 * part);
            beyond(100.0 * self.reuse_fraction, resumed, "a share of resumed handshakes", " %");
            beyond(self.requests_per_connection, of.range.requests_count, "a number of requests per connection", "");
            if let Some(kilobytes) = self.kilobytes {
                beyond(kilobytes, of.range.kilobytes, "a size of responses", " kB");
            }
            let most = of_place().map(|of| self.rate_per_s / f64::from(of.machines.ends().0)).fold(0.0, f64::max);
            if of.range.rate_per_s > 0.0 && most > 1.02 * of.range.rate_per_s {
                said.push(format!(
                    "up to {most:.0} hits/s on one {told} is extrapolation: {:.0} was the most that was measured",
                    of.range.rate_per_s
                ));
            }
        }
        said
    }

    fn connections_per_s(&self) -> f64 {
        self.rate_per_s / self.requests_per_connection
    }

    /// Whole CPUs of a machine, and how fast they are.
    pub fn cpus_and_speed(&self) -> (u32, f64) {
        let cpus = self.cpus.ceil().max(1.0);
        (cpus as u32, self.cpus / cpus)
    }

    /// Kilobytes of so many requests: as measured, the smallest of several.
    fn kilobytes_of(&self, costs: &Costs, place: Place, requests: f64) -> f64 {
        let measured = || costs.at(place).map_or(0.0, |of| of.range.kilobytes[0]);
        let each = self.kilobytes.unwrap_or_else(measured);
        if each.is_finite() { requests * each } else { 0.0 }
    }

    /// The first request of a connection with its handshake: a new visitor's, or a returning one's.
    pub fn opening(&self, costs: &Costs, place: Place, resumes: bool) -> Work {
        let [full, resumed] = if resumes { [0.0, 1.0] } else { [1.0, 0.0] };
        [full, resumed, 1.0, self.kilobytes_of(costs, place, 1.0)]
    }

    /// A further request of a connection.
    pub fn request(&self, costs: &Costs, place: Place) -> Work {
        [0.0, 0.0, 1.0, self.kilobytes_of(costs, place, 1.0)]
    }

    /// What one machine that ends TLS has to do: kinds of pieces, how often each comes a second, seconds of a CPU.
    fn pieces(&self, costs: &Costs, drawn: &Drawn<'_>, machines: Machines) -> [(f64, f64); 3] {
        let (ends, place) = machines.ends();
        let opened = self.connections_per_s() / f64::from(ends);
        let resumed = opened * self.reuse_fraction * self.kept(machines);
        let s = |work: Work| drawn.cpu_ns(place, work) / 1e9;
        [
            (opened - resumed, s(self.opening(costs, place, false))),
            (resumed, s(self.opening(costs, place, true))),
            (self.rate_per_s / f64::from(ends) - opened, s(self.request(costs, place))),
        ]
    }

    /// The queue of a machine that ends TLS, and that of a server behind it.
    fn queues(&self, costs: &Costs, drawn: &Drawn<'_>, machines: Machines) -> [Option<Queue>; 2] {
        let (cpus, speed) = self.cpus_and_speed();
        let ends = Queue::of(&self.pieces(costs, drawn, machines), cpus, speed);
        let behind = (machines.proxies > 0).then(|| {
            let s = drawn.cpu_ns(Place::Behind, self.request(costs, Place::Behind)) / 1e9;
            Queue::of(&[(self.rate_per_s / f64::from(machines.servers), s)], cpus, speed)
        });
        [Some(ends), behind]
    }

    fn used(&self, costs: &Costs, drawn: &Drawn<'_>, machines: Machines) -> f64 {
        self.queues(costs, drawn, machines).iter().flatten().map(Queue::used).fold(0.0, f64::max)
    }

    /// With so many proxies, numbers of servers around the fewest that carry it: one that does not by the fit, the
    /// fewest that do by the fit and surely, and one more.
    pub fn around_fewest(&self, costs: &Costs, proxies: u32) -> Vec<Machines> {
        let with = |servers| Machines { servers, proxies };
        let used = |servers| costs.estimate(|drawn| self.used(costs, drawn, with(servers)));
        let fewest = |is_enough: &dyn Fn(Estimate) -> bool| {
            let enough = (0..SERVERS_BITS).map(|bits| 1_u32 << bits).find(|servers| is_enough(used(*servers)))?;
            let [mut few, mut enough] = [enough / 2, enough];
            while few + 1 < enough {
                let middle = few.midpoint(enough);
                *(if is_enough(used(middle)) { &mut enough } else { &mut few }) = middle;
            }
            Some(enough)
        };
        let by_fit = fewest(&|used| used.value < 1.0).unwrap_or(1);
        let surely = fewest(&is_carried).unwrap_or(by_fit);
        let mut all = vec![by_fit.saturating_sub(1).max(1), by_fit, surely, surely + 1];
        all.sort_unstable();
        all.dedup();
        all.into_iter().map(with).collect()
    }

    /// CPUs of all machines together, by which the number of machines follows from the traffic.
    pub fn cpus_used(&self, costs: &Costs, machines: Machines) -> Estimate {
        costs.estimate(|drawn| self.cpu_s_per_s(costs, drawn, machines))
    }

    /// CPU time of the machines that end TLS for a request, nanoseconds.
    pub(crate) fn cpu_ns_of_ends(&self, costs: &Costs, drawn: &Drawn<'_>, machines: Machines) -> f64 {
        let pieces = self.pieces(costs, drawn, machines);
        let each_s: f64 = pieces.iter().map(|(rate, s)| rate * s).sum();
        each_s * f64::from(machines.ends().0) * 1e9 / self.rate_per_s
    }

    /// CPU time of all machines, seconds a second.
    pub(crate) fn cpu_s_per_s(&self, costs: &Costs, drawn: &Drawn<'_>, machines: Machines) -> f64 {
        let (_, speed) = self.cpus_and_speed();
        let counts = [machines.ends().0, machines.servers].map(f64::from);
        let queues = self.queues(costs, drawn, machines);
        let each = queues.iter().zip(counts).filter_map(|(queue, count)| Some((queue.as_ref()?, count)));
        each.map(|(queue, count)| count * queue.rate_per_s * queue.mean_s * speed).sum()
    }

    pub fn predict(&self, costs: &Costs, machines: Machines, price: Option<f64>) -> Prediction {
        let used = costs.estimate(|drawn| self.used(costs, drawn, machines));
        let per_connection = [1.0, 0.0, 0.0, self.kilobytes_of(costs, Place::Dispatcher, self.requests_per_connection)];
        let dispatcher =
            |drawn: &Drawn<'_>| self.connections_per_s() * drawn.cpu_ns(Place::Dispatcher, per_connection) / 1e9;
        let has_dispatcher = machines.ends().0 > 1 && costs.at(Place::Dispatcher).is_some();
        Prediction {
            machines,
            kept_fraction: self.kept(machines),
            cpu_ns_per_hit: costs.estimate(|drawn| self.cpu_s_per_s(costs, drawn, machines) * 1e9 / self.rate_per_s),
            used,
            capacity_per_s: costs.estimate(|drawn| self.rate_per_s / self.used(costs, drawn, machines)),
            dispatcher_cpus: has_dispatcher.then(|| costs.estimate(dispatcher)),
            visitors: [false, true].map(|resumes| self.latency(costs, machines, resumes)),
            price_per_h: price.map(|price| price * self.cpus * f64::from(machines.count())),
        }
    }

    fn latency(&self, costs: &Costs, machines: Machines, resumes: bool) -> Latency {
        let place = machines.ends().1;
        let (_, speed) = self.cpus_and_speed();
        let of = |wait: &dyn Fn(&Queue) -> f64| {
            costs.estimate(|drawn| {
                let own_s = drawn.cpu_ns(place, self.opening(costs, place, resumes)) / 1e9 / speed;
                let [ends, behind] = self.queues(costs, drawn, machines);
                let behind_s = behind.map_or(0.0, |queue| queue.mean_s + queue.wait_s());
                own_s + behind_s + ends.map_or(0.0, |queue| wait(&queue))
            })
        };
        Latency { mean_s: of(&Queue::wait_s), p99_s: of(&|queue| queue.wait_quantile_s(0.99)) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::costs::samples;

    pub(crate) fn site() -> Site {
        Site {
            rate_per_s: 2000.0,
            requests_per_connection: 1.0,
            reuse_fraction: 0.5,
            kilobytes: None,
            cpus: 1.0,
            policy: Policy::Session,
            shares_keys: false,
        }
    }

    const ONE: Machines = Machines { servers: 1, proxies: 0 };

    #[test]
    fn use_and_capacity_are_those_of_mraz_and_amdahl() {
        let costs = samples::costs(0.0);
        // (1 − r) 940 µs + r 340 µs = 640 µs a hit: 1.28 CPUs at 2000 a second.
        let one = site().predict(&costs, ONE, None);
        assert!((one.used.value - 1.28).abs() < 1e-3 && (one.capacity_per_s.value - 1562.5).abs() < 2.0);
        let two = site().predict(&costs, Machines { servers: 2, proxies: 0 }, Some(0.04));
        assert!((two.used.value - 0.64).abs() < 1e-3 && (two.price_per_h.unwrap() - 0.08).abs() < 1e-12);
        // Round robin keeps a half on two machines.
        let blind = Site { policy: Policy::RoundRobin, ..site() };
        let blind = blind.predict(&costs, Machines { servers: 2, proxies: 0 }, None);
        assert!((blind.used.value - (0.75 * 940.0 + 0.25 * 340.0) / 1000.0).abs() < 1e-3, "{blind:?}");
        // Eight requests of a connection share its handshake.
        let kept = Site { requests_per_connection: 8.0, ..site() }.predict(&costs, ONE, None);
        assert!((kept.used.value - 2000.0 * (600.0 / 8.0 + 40.0) * 1e-6).abs() < 1e-3);
    }

    #[test]
    fn the_fewest_servers_are_found_whatever_their_number() {
        let counts = |site: &Site, costs: &Costs, proxies| -> Vec<u32> {
            site.around_fewest(costs, proxies).iter().map(|of| of.servers).collect()
        };
        // 1.28 CPUs of work; a thousand times as much.
        let known = samples::costs(0.0);
        assert_eq!(counts(&site(), &known, 0), [1, 2, 3]);
        let busy = Site { rate_per_s: 2.001e6, ..site() };
        assert_eq!(counts(&busy, &known, 0), [1280, 1281, 1282]);
        let scattered = counts(&busy, &samples::costs(0.05), 0);
        assert!(scattered.len() == 4 && scattered[2] > scattered[1] + 5, "{scattered:?}");
        // Round robin keeps less and less; proxies that are full no servers help.
        let blind = Site { policy: Policy::RoundRobin, rate_per_s: 1e5, ..site() };
        let fewest = counts(&blind, &known, 0)[1];
        let used = |servers| blind.predict(&known, Machines { servers, proxies: 0 }, None).used.value;
        assert!(used(fewest) < 1.0 && used(fewest - 1) >= 1.0, "{fewest}");
        assert_eq!(counts(&busy, &known, 1), [1, 2]);
    }

    #[test]
    fn proxies_and_the_server_behind_them_are_full_one_after_the_other() {
        let costs = samples::costs(0.0);
        let with = |proxies| site().predict(&costs, Machines { servers: 1, proxies }, None);
        // 660 µs a hit at the proxies, 30 µs behind them.
        assert!((with(2).used.value - 0.66).abs() < 1e-3);
        let busy = Site { rate_per_s: 30_000.0, ..site() };
        let many = busy.predict(&costs, Machines { servers: 1, proxies: 40 }, None);
        assert!((many.used.value - 0.9).abs() < 1e-3, "the server: {many:?}");
    }

    #[test]
    fn a_returning_visitor_waits_less_and_full_machines_without_an_end() {
        let costs = samples::costs(0.02);
        let [new, returning] = site().predict(&costs, Machines { servers: 2, proxies: 0 }, None).visitors;
        assert!(returning.mean_s.high < new.mean_s.low && new.mean_s.value < new.p99_s.value);
        assert!(site().predict(&costs, ONE, None).visitors[0].mean_s.value.is_infinite());
    }

    #[test]
    fn what_was_not_measured_is_said() {
        let costs = samples::costs(0.0);
        let told = |site: &Site| site.extrapolates(&costs, &[site.predict(&costs, ONE, None)]).join("; ");
        assert!(told(&Site { rate_per_s: 900.0, ..site() }).is_empty());
        assert!(told(&site()).contains("2000 hits/s on one server is extrapolation: 1000"), "{}", told(&site()));
        let told = told(&Site { rate_per_s: 900.0, reuse_fraction: 1.0, ..site() });
        assert!(told.contains("resumed handshakes of 100 % is extrapolation: at the server 0 to 90 %"), "{told}");
    }
}
