//! The machines of a paper, emulated by quotas of CPU time: each configuration of an experiment is measured on each.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{ConfigurationModel, Processors};

/// The part of a real processor that each processor of the fastest machine has: two of them leave room for the load
/// where a machine has two processors in all.
const FASTEST_SPEED: f64 = 0.4;

/// A machine: how many processors of which clock rate. `500`, `2x933`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Machine {
    /// Number of processors.
    pub count: u32,
    /// Clock rate of each processor, MHz.
    pub mhz: u32,
}

impl FromStr for Machine {
    type Err = String;

    fn from_str(text: &str) -> Result<Machine, String> {
        let wrong = || format!("`{text}` is no machine; write its MHz, `500`, or processors and MHz, `2x933`");
        let (count, mhz) = text.split_once('x').unwrap_or(("1", text));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number > 0).ok_or_else(wrong);
        Ok(Machine { count: number(count)?, mhz: number(mhz)? })
    }
}

impl TryFrom<String> for Machine {
    type Error = String;

    fn try_from(text: String) -> Result<Machine, String> {
        text.parse()
    }
}

impl From<Machine> for String {
    fn from(machine: Machine) -> String {
        match machine {
            Machine { count: 1, mhz } => mhz.to_string(),
            Machine { count, mhz } => format!("{count}x{mhz}"),
        }
    }
}

/// As the papers write it: `500 MHz`, `2 x 933 MHz`.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Machine { count: 1, mhz } => write!(f, "{mhz} MHz"),
            Machine { count, mhz } => write!(f, "{count} x {mhz} MHz"),
        }
    }
}

impl Machine {
    /// The name of a configuration on this machine.
    pub fn name_of(self, configuration: &str) -> String {
        format!("{configuration}, {self}")
    }
}

/// The part of a real processor that one of this clock rate is beside these machines; `None`: there are none.
pub fn speed_beside(machines: &[Machine], mhz: u32) -> Option<f64> {
    let fastest = machines.iter().map(|machine| machine.mhz).max()?;
    Some((FASTEST_SPEED * 1e3 * f64::from(mhz) / f64::from(fastest)).round() / 1e3)
}

/// The configurations with what they are on each machine, behind those that they are made of. Twice is as good as once.
/// One that says itself what processors it has stays what it is.
pub(super) fn multiplied(configurations: &[ConfigurationModel], machines: &[Machine]) -> Vec<ConfigurationModel> {
    let has_machines = |model: &&ConfigurationModel| {
        model.base.is_none() && model.processors.is_none() && model.repeat_of.is_none() && model.wrapped.is_empty()
    };
    let mut all = configurations.to_vec();
    for machine in machines {
        for model in configurations.iter().filter(has_machines) {
            let name = machine.name_of(&model.name);
            if configurations.iter().all(|other| other.name != name) {
                let speed = speed_beside(machines, machine.mhz).expect("there is one");
                let processors = Some(Processors { count: machine.count, speed });
                all.push(ConfigurationModel { name, processors, base: Some(model.name.clone()), ..model.clone() });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_read_as_they_are_written() {
        let machine = |text: &str| text.parse::<Machine>();
        assert_eq!(machine("500"), Ok(Machine { count: 1, mhz: 500 }));
        assert_eq!(machine("2x933").map(|machine| machine.to_string()), Ok("2 x 933 MHz".to_owned()));
        for text in ["2x933", "500"] {
            assert_eq!(String::from(machine(text).unwrap()), text);
        }
        for wrong in ["", "x", "0", "2x", "fast", "2 x 933 MHz"] {
            assert!(machine(wrong).unwrap_err().contains("`2x933`"), "{wrong}");
        }
    }

    #[test]
    fn configurations_are_multiplied_once() {
        let machines = ["500", "933", "2x933"].map(|text| text.parse().unwrap());
        let slow = Some(Processors { count: 1, speed: 0.1 });
        let own = ConfigurationModel { name: "own".to_owned(), processors: slow, ..ConfigurationModel::as_is() };
        let bases = [ConfigurationModel::as_is(), ConfigurationModel::plain_http(), own];
        let all = multiplied(&bases, &machines);
        assert_eq!(all.len(), 3 + 2 * 3);
        let speeds: Vec<_> = all[3..].iter().filter_map(|model| model.processors).collect();
        assert_eq!([speeds[0], speeds[2], speeds[4]].map(|of| (of.count, of.speed)), [(1, 0.214), (1, 0.4), (2, 0.4)]);
        assert_eq!((all[8].name.as_str(), all[8].base.as_deref()), ("plain HTTP, 2 x 933 MHz", Some("plain HTTP")));
        assert_eq!(multiplied(&all, &machines), all);
    }
}
