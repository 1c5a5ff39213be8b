//! What the instrument can resolve on a machine: results of `tlsdyno doctor --calibrate`, kept beside the store.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tlsdyno_base::distribution::student_t_two_sided;
use tlsdyno_base::private;

use super::{StoreError, default_path};

/// File in the directory of the store.
const FILE: &str = "calibrations.json";
/// Both errors of a detection limit, to claim a difference where there is none and to miss one of that size: 5 %.
const COVERAGE: f64 = 0.95;

/// A cost that was injected, and what the instrument made of it: microseconds of server CPU per handshake, differences
/// to a server with the idle provider.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recovered {
    /// What was injected; 0: nothing (A/A, the untouched server twice).
    pub injected_us: f64,
    /// What was measured.
    pub measured_us: f64,
    /// Lower end of its 95 % interval.
    pub low_us: f64,
    /// Upper end of its 95 % interval.
    pub high_us: f64,
}

impl Recovered {
    /// What was measured beyond what was injected.
    pub fn bias_us(&self) -> f64 {
        self.measured_us - self.injected_us
    }

    /// Half the width of the interval.
    pub fn half_width_us(&self) -> f64 {
        (self.high_us - self.low_us) / 2.0
    }
}

/// One calibration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// When it was made, seconds since 1970 (UTC).
    pub created_unix_s: u64,
    /// The machine: host name and CPU model.
    pub machine: String,
    /// Server under test.
    pub server: String,
    /// Certificate of the server.
    pub certificate: String,
    /// Rounds measured.
    pub rounds: u32,
    /// Seconds that a configuration was measured in one round, mean.
    pub block_s: f64,
    /// Server CPU per hit of the untouched server, microseconds. A hit is a connection with a full handshake here.
    pub hit_us: f64,
    /// Spread of the paired differences from round to round, microseconds: the standard error of a mean over n rounds
    /// is `spread / √n`.
    pub spread_us: f64,
    /// Length of the slices that compare better on this machine than those by default, microseconds. `None`: no length
    /// that was tried compares much better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_us: Option<u64>,
    /// A/A first, then the injected costs.
    pub recovered: Vec<Recovered>,
}

impl Calibration {
    /// The smallest difference between two configurations that is found 19 times in 20 when each is measured for
    /// `seconds`, in microseconds: `(t₀.₉₇₅ + t₀.₉₅) · spread / √n` with `n = seconds / block` and the degrees of
    /// freedom of the calibration (the detection limit of Currie, Analytical Chemistry 40(3), 1968, with a
    /// two-sided decision at 5 %). It assumes that differences of blocks are independent. Infinite where
    /// nothing was measured.
    pub fn limit_us(&self, seconds: f64) -> f64 {
        if seconds.is_nan() || seconds <= 0.0 {
            return f64::INFINITY;
        }
        let degrees = f64::from(self.rounds.max(2) - 1);
        let t = student_t_two_sided(COVERAGE, degrees) + student_t_two_sided(2.0 * COVERAGE - 1.0, degrees);
        t * self.spread_us * (self.block_s / seconds).sqrt()
    }

    /// [`Calibration::limit_us`] in per cent of a hit.
    pub fn limit_percent(&self, seconds: f64) -> f64 {
        self.limit_us(seconds) / self.hit_us * 100.0
    }

    /// Keeps it as the last one of its machine and server.
    ///
    /// # Errors
    /// There is no place for the store, or the file cannot be written.
    pub fn keep(&self) -> Result<PathBuf, StoreError> {
        let path = path()?;
        let mut all = read_all();
        all.retain(|other| (&other.machine, &other.server) != (&self.machine, &self.server));
        all.push(self.clone());
        let text =
            serde_json::to_vec_pretty(&all).expect("calibrations have string keys only, so that they are always JSON");
        let write = || -> std::io::Result<()> {
            let directory = private::directory(path.parent().unwrap_or(&path))?;
            let path = directory.join(path.file_name().unwrap_or_default());
            let new = path.with_extension("json.new");
            private::write(&new, &text)?;
            fs::rename(&new, &path)
        };
        write().map_err(|error| StoreError::Calibrations { path: path.clone(), cause: error.to_string() })?;
        Ok(path)
    }

    /// The last calibration of this machine with `server`, else with any server.
    pub fn last(server: &str) -> Option<Calibration> {
        let machine = this_machine();
        let mut all: Vec<Calibration> = read_all().into_iter().filter(|one| one.machine == machine).collect();
        all.sort_by_key(|one| (one.server == server, one.created_unix_s));
        all.pop()
    }
}

/// Host name and CPU model.
pub fn this_machine() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    format!("{host}, {}", model.map_or("unknown CPU", |(_, name)| name.trim()))
}

fn path() -> Result<PathBuf, StoreError> {
    let store = default_path()?;
    Ok(store.parent().unwrap_or(&store).join(FILE))
}

/// A file that is missing or of another version holds no calibration of use.
fn read_all() -> Vec<Calibration> {
    let bytes = path().ok().and_then(|path| fs::read(path).ok()).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Calibration {
        Calibration {
            created_unix_s: 1_790_000_000,
            machine: "host, CPU".to_owned(),
            server: "nginx".to_owned(),
            certificate: "p-256".to_owned(),
            rounds: 16,
            block_s: 0.1,
            hit_us: 400.0,
            spread_us: 10.0,
            slice_us: None,
            recovered: Vec::new(),
        }
    }

    #[test]
    fn limits_shrink_with_the_root_of_the_time() {
        let calibration = example();
        let (short, long) = (calibration.limit_us(10.0), calibration.limit_us(40.0));
        assert!((short / long - 2.0).abs() < 1e-9, "{short} {long}");
        // t(0.975, 15) = 2.131, t(0.95, 15) = 1.753; 100 rounds.
        assert!((short - (2.131 + 1.753)).abs() < 0.01, "{short}");
        assert!((calibration.limit_percent(10.0) - short / 4.0).abs() < 1e-9);
        assert_eq!(calibration.limit_us(0.0), f64::INFINITY);
    }

    #[test]
    fn a_bias_is_what_was_measured_beyond_the_truth() {
        let recovered = Recovered { injected_us: 20.0, measured_us: 23.0, low_us: 19.0, high_us: 27.0 };
        assert_eq!((recovered.bias_us(), recovered.half_width_us()), (3.0, 4.0));
    }
}
