//! How packets travel between two ends, as data: what a simulation plays, and a relay of packets in tests.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use tlsdyno_base::random::SplitMix64;
use tlsdyno_engine::time::Time;

/// A network. What a phase says of itself goes before what is said of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    pub all: Part,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Part>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake: Option<Part>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Part>,
    /// Hours of the day (UTC) in which delays are longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<Busy>,
}

/// What a phase may say. An empty table changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Part {
    /// Delay from one end to the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Time>,
    /// How much delays vary: the standard deviation of their logarithm. The median stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ratio: Option<f64>,
    /// Packets that do not arrive, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_percent: Option<f64>,
    /// Connections that are reset in this phase, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_percent: Option<f64>,
    /// Connections of which nothing arrives any more from this phase on, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blackhole_percent: Option<f64>,
}

/// Busy hours: delays grow to the middle of them and shrink again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Busy {
    /// The first hour, and the one after the last.
    pub hours: [u32; 2],
    /// How many times as long delays are in the middle.
    pub ratio: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Tcp,
    Handshake,
    Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Good,
    Reset,
    /// Nothing arrives any more.
    Blackhole,
}

impl Network {
    /// Whether all numbers make sense.
    pub fn check(&self) -> Result<()> {
        for part in [Some(self.all), self.tcp, self.handshake, self.answer].into_iter().flatten() {
            for percent in [part.loss_percent, part.reset_percent, part.blackhole_percent].into_iter().flatten() {
                ensure!((0.0..=100.0).contains(&percent), "{percent} is no percentage");
            }
            let jitter = part.jitter_ratio.unwrap_or(0.0);
            ensure!((0.0..=3.0).contains(&jitter), "jitter is the standard deviation of a logarithm: 0 to 3");
        }
        let right = |Busy { hours: [from, until], ratio }: Busy| from < until && until <= 24 && ratio >= 1.0;
        ensure!(
            self.busy.is_none_or(right),
            "busy hours lie between 0 and 24, the first before the last, and their ratio is at least 1"
        );
        Ok(())
    }

    fn of(&self, phase: Phase, value: fn(&Part) -> Option<f64>) -> f64 {
        let own = match phase {
            Phase::Tcp => &self.tcp,
            Phase::Handshake => &self.handshake,
            Phase::Answer => &self.answer,
        };
        own.as_ref().and_then(value).or_else(|| value(&self.all)).unwrap_or(0.0)
    }

    /// How long a packet is under way, in nanoseconds, at that second since 1970.
    pub fn delay_ns(&self, phase: Phase, unix_s: i64, random: &mut SplitMix64) -> u64 {
        let median_ns = self.of(phase, |part| part.delay.map(|delay| delay.ns() as f64));
        let jitter = self.of(phase, |part| part.jitter_ratio);
        let spread = if jitter > 0.0 { (jitter * random.normal()).exp() } else { 1.0 };
        (median_ns * spread * self.busy.map_or(1.0, |busy| busy.ratio_at(unix_s))) as u64
    }

    pub fn is_lost(&self, phase: Phase, random: &mut SplitMix64) -> bool {
        chance(self.of(phase, |part| part.loss_percent), random)
    }

    pub fn fate(&self, phase: Phase, random: &mut SplitMix64) -> Fate {
        if chance(self.of(phase, |part| part.reset_percent), random) {
            Fate::Reset
        } else if chance(self.of(phase, |part| part.blackhole_percent), random) {
            Fate::Blackhole
        } else {
            Fate::Good
        }
    }
}

fn chance(percent: f64, random: &mut SplitMix64) -> bool {
    percent > 0.0 && random.uniform() * 100.0 < percent
}

impl Busy {
    fn ratio_at(self, unix_s: i64) -> f64 {
        let hour = unix_s.rem_euclid(86_400) as f64 / 3600.0;
        let [from, until] = self.hours.map(f64::from);
        if !(from..until).contains(&hour) {
            return 1.0;
        }
        1.0 + (self.ratio - 1.0) * (std::f64::consts::PI * (hour - from) / (until - from)).sin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_go_before_all_and_afternoons_are_busy() {
        let text = "[all]\ndelay = \"10ms\"\nloss_percent = 100\n[handshake]\ndelay = \"30ms\"\nloss_percent = 0\n\
                    [busy]\nhours = [12, 18]\nratio = 3\n";
        let network: Network = toml::from_str(text).unwrap();
        network.check().unwrap();
        let mut random = SplitMix64::new(1);
        let mut delay = |phase, hour: i64| network.delay_ns(phase, 3600 * hour, &mut random) / 1_000_000;
        assert_eq!([delay(Phase::Tcp, 3), delay(Phase::Handshake, 3)], [10, 30]);
        assert_eq!([delay(Phase::Tcp, 15), delay(Phase::Tcp, 18), delay(Phase::Tcp, 24 + 15)], [30, 10, 30]);
        assert!(network.is_lost(Phase::Answer, &mut random) && !network.is_lost(Phase::Handshake, &mut random));
        assert!(toml::from_str::<Network>("[tcp]\nsurprise = 1\n").is_err());
        let odd: Network = toml::from_str("all.loss_percent = 101\n").unwrap();
        assert!(odd.check().unwrap_err().to_string().contains("percentage"));
    }

    #[test]
    fn the_median_of_a_delay_is_what_was_asked_for() {
        let network: Network = toml::from_str("all = { delay = \"10ms\", jitter_ratio = 0.5 }\n").unwrap();
        let mut random = SplitMix64::new(2);
        let mut all: Vec<u64> = (0..10_001).map(|_| network.delay_ns(Phase::Tcp, 0, &mut random)).collect();
        all.sort_unstable();
        assert!((all[5000] as f64 / 10e6 - 1.0).abs() < 0.03, "{}", all[5000]);
        // One in six is longer by the factor e^0.5.
        assert!((all[8413] as f64 / 16.49e6 - 1.0).abs() < 0.05, "{}", all[8413]);
    }
}
