//! A network between clients and servers: what a relay of packets plays under load.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tlsdyno_engine::time::Time;
use tlsdyno_tls::named;

named! {
    /// Whose line a bandwidth is that of.
    #[derive(Default)]
    pub enum Line: "owner of a line" {
        /// one line for all clients together
        #[default]
        All = "all",
        /// a line for each connection, as for clients with a modem or a radio link each
        Connection = "connection",
    }
}

/// A network between clients and servers: `--network`, or the table `network` of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// How much longer a packet and its answer take together, milliseconds: half of it each way.
    pub delay_ms: f64,
    /// Share of the packets of each way that are lost, 0 to 0.5.
    #[serde(rename = "loss")]
    pub loss_fraction: f64,
    /// Bits of IP packets that a line takes each way, in kilobits (1000 bits) a second; `None`: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_kbit: Option<f64>,
    /// Packets that wait for a line at most, each way; one more is dropped.
    pub queue_packets: u32,
    /// Whether all clients together have a line, or each connection has one.
    pub line: Line,
    /// Seed of the losses.
    pub seed: u64,
}

impl Default for Network {
    fn default() -> Network {
        Network { delay_ms: 0.0, loss_fraction: 0.0, rate_kbit: None, queue_packets: 100, line: Line::All, seed: 1 }
    }
}

/// The longest delay, milliseconds: beyond it TCP gives up before an answer is there.
const DELAY_MS_MAX: f64 = 10_000.0;

impl Network {
    /// The longest delay at which slices of milliseconds can be compared, milliseconds.
    pub const SLICED_MS_MAX: f64 = 2.0;

    /// The kilobits (1000 bits) of a bandwidth as `56kbit` or `1.5mbit`, a second.
    pub fn kbit(text: &str) -> Option<f64> {
        let units = [("kbit", 1.0), ("mbit", 1e3)];
        let unit = |(unit, kbit)| Some((text.strip_suffix(unit)?.trim().parse::<f64>().ok()?, kbit));
        units.into_iter().find_map(unit).map(|(value, kbit)| value * kbit)
    }

    /// Whether all numbers make sense.
    ///
    /// # Errors
    /// Says which does not, and what would.
    pub fn check(&self) -> Result<(), String> {
        if !(0.0..=DELAY_MS_MAX).contains(&self.delay_ms) {
            return Err(format!("a network's delay of {} ms: expected 0 to {DELAY_MS_MAX} ms", self.delay_ms));
        }
        if !(0.0..=0.5).contains(&self.loss_fraction) {
            return Err(format!(
                "a network that loses {} % of its packets: expected 0 to 50 %",
                self.loss_fraction * 100.0
            ));
        }
        if self.rate_kbit.is_some_and(|rate| !(1.0..=1e7).contains(&rate)) {
            return Err("a network's rate: expected 1kbit to 10000mbit; without one there is no limit".to_owned());
        }
        if self.queue_packets == 0 {
            return Err("a line with a queue of 0 packets takes none: give it 1 at least".to_owned());
        }
        Ok(())
    }
}

/// What parts a network has, and how they are written.
const PARTS: &str =
    "delay=50ms (of a packet and its answer), loss=1% (of each way), rate=56kbit, queue=100, line=connection, seed=1";

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let mut network = Network::default();
        for part in text.split(',') {
            let wrong = || format!("`{}` is no part of a network; write for example {PARTS}", part.trim());
            let (name, value) = part.trim().split_once('=').ok_or_else(wrong)?;
            let number = |text: &str| text.trim().parse::<f64>().map_err(|_| wrong());
            match name {
                "delay" => network.delay_ms = value.parse::<Time>()?.0.as_secs_f64() * 1e3,
                "loss" => network.loss_fraction = number(value.strip_suffix('%').ok_or_else(wrong)?)? / 100.0,
                "rate" => {
                    network.rate_kbit = Some(Network::kbit(value).ok_or_else(wrong)?);
                }
                "queue" => network.queue_packets = value.parse().map_err(|_| wrong())?,
                "line" => network.line = value.parse::<Line>().map_err(|error| error.to_string())?,
                "seed" => network.seed = value.parse().map_err(|_| wrong())?,
                _ => return Err(wrong()),
            }
        }
        network.check()?;
        Ok(network)
    }
}

/// As [`Network::from_str`] reads it.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = Network::default();
        write!(f, "delay={}ms", self.delay_ms)?;
        if self.loss_fraction > 0.0 {
            write!(f, ",loss={}%", self.loss_fraction * 100.0)?;
        }
        if let Some(rate) = self.rate_kbit {
            write!(f, ",rate={rate}kbit,queue={},line={}", self.queue_packets, self.line.name())?;
        }
        if self.seed != usual.seed {
            write!(f, ",seed={}", self.seed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_survives_being_written_and_what_is_none_is_refused() {
        let network: Network = "delay=50ms,loss=1%,rate=1.5mbit,line=connection".parse().unwrap();
        let expected = Network {
            delay_ms: 50.0,
            loss_fraction: 0.01,
            rate_kbit: Some(1500.0),
            line: Line::Connection,
            ..Network::default()
        };
        assert_eq!(network, expected);
        assert_eq!(network.to_string().parse(), Ok(network));
        let of_file: Network =
            toml::from_str("delay_ms = 50\nloss = 0.01\nrate_kbit = 1500\nline = \"connection\"").unwrap();
        assert_eq!(of_file, network);
        let refused = |text: &str| text.parse::<Network>().unwrap_err();
        assert!(
            ["", "delay", "loss=1", "rate=56", "jitter=3ms"].iter().all(|text| refused(text).contains("rate=56kbit"))
        );
        assert!(refused("loss=60%").contains("0 to 50 %") && refused("delay=11s").contains("10000 ms"));
        assert!(refused("rate=0kbit").contains("1kbit") && refused("queue=0").contains("1 at least"));
        assert!(refused("line=mine").contains("connection"));
    }
}
