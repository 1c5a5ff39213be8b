//! Limits of what a change may be, as a gate in continuous integration gives them: `cpu/hit > +3%` fails.

use std::fmt;
use std::str::FromStr;

use tlsdyno_tls::named;

named! {
    /// A quantity in which two loads or servers are compared.
    pub enum ComparedQuantity: "quantity" {
        /// CPU time of the server's processes by hits.
        CpuPerHit = "CPU per hit" | "cpu/hit" | "cpu",
        /// Instructions by hits, as counted in an emulation.
        InstructionsPerHit = "instructions per hit" | "instructions/hit" | "instructions",
        /// Hits by elapsed time.
        HitsPerSecond = "hits/s" | "rps" | "requests/s",
        /// Median latency.
        LatencyP50 = "latency p50" | "p50" | "median",
        /// The 99th percentile of latency.
        LatencyP99 = "latency p99" | "p99",
    }
}

/// Limit that a change must not be shown to be beyond.
#[derive(Clone, Debug)]
pub struct ChangeLimit {
    text: String,
    /// The quantity that is limited.
    pub quantity: ComparedQuantity,
    /// The check fails above the limit, else below it.
    pub fails_above: bool,
    /// The limit: the second by the first less one, per cent.
    pub percent: f64,
}

impl FromStr for ChangeLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<ChangeLimit, String> {
        let form = || format!("`{text}` limits no change; write for example 'cpu/hit > +3%' or 'hits/s < -5%'");
        let at = text.find(['<', '>']).ok_or_else(form)?;
        let name = text[..at].trim().to_ascii_lowercase();
        let quantity = name.parse().map_err(|_| {
            format!("`{name}` is nothing that two are compared by; known are cpu/hit, instructions, hits/s, p50, p99")
        })?;
        let value = text[at + 1..].trim_start_matches('=').trim();
        let is_signed = value.starts_with(['+', '-']);
        let number = value.strip_suffix('%').filter(|_| is_signed).ok_or_else(form)?;
        let percent = number.trim().parse().map_err(|_| form())?;
        Ok(ChangeLimit { text: text.trim().to_owned(), quantity, fails_above: text[at..].starts_with('>'), percent })
    }
}

impl fmt::Display for ChangeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
