//! What a paper published of what an experiment measures: its numbers, by quantity.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tlsdyno_tls::named;

use super::sentences::sentences;

named! {
    /// What published numbers are of.
    pub enum Quantity: "published quantity" {
        /// hits per second
        HitsPerS = "hits_per_s",
        /// hits per second in per cent of those of plain HTTP, where the paper prints these
        PercentOfPlain = "percent_of_plain",
        /// shares of the cost of a hit, per cent
        SharesPercent = "shares_percent",
        /// percent reuse with half of the hits per second of plain HTTP
        HalfServingPercent = "half_serving_percent",
        /// mean latency of a hit, milliseconds
        LatencyMs = "latency_ms",
        /// time of a handshake, milliseconds
        HandshakeMs = "handshake_ms",
        /// bytes that the server sends for a handshake
        ServerBytes = "server_bytes",
        /// bytes that the client sends for a handshake
        ClientBytes = "client_bytes",
        /// million bits a second
        MbitPerS = "mbit_per_s",
    }
}

/// What a paper published, beside which ours is shown. Each quantity is a table: its rows are named as the experiment
/// names what was measured, its columns are the paper's machines, or what stands in `at`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Paper {
    /// Authors, year, figure or table.
    pub source: String,
    /// The paper's machines.
    pub machines: Vec<String>,
    /// The columns of its numbers, where they are not its machines: `75 % reuse`, `4096 B`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<String>,
    /// What is not as in the paper, one sentence each.
    #[serde(deserialize_with = "sentences")]
    pub differences: Vec<String>,
    /// The rows of each quantity.
    #[serde(flatten)]
    pub numbers: BTreeMap<Quantity, BTreeMap<String, Vec<PublishedNumber>>>,
}

/// Half of the last digit that the papers print.
const HALF_A_DIGIT: f64 = 0.5;

/// A published number, as a range: one that is printed alone has two equal ends. They are no numbers where nothing was
/// published or it is illegible.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct PublishedNumber {
    /// The least that the paper gives.
    pub low: f64,
    /// The most that the paper gives.
    pub high: f64,
}

/// As files have it. JSON knows no NaN: that is `null` there.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Number(Option<f64>),
    Range([f64; 2]),
}

impl From<Written> for PublishedNumber {
    fn from(written: Written) -> PublishedNumber {
        match written {
            Written::Number(number) => PublishedNumber::number(number.unwrap_or(f64::NAN)),
            Written::Range([low, high]) => PublishedNumber { low, high },
        }
    }
}

impl From<PublishedNumber> for Written {
    fn from(PublishedNumber { low, high }: PublishedNumber) -> Written {
        if low < high { Written::Range([low, high]) } else { Written::Number(Some(low)) }
    }
}

impl PublishedNumber {
    /// A published number that is printed alone.
    pub const fn number(number: f64) -> PublishedNumber {
        PublishedNumber { low: number, high: number }
    }

    /// Whether the number was published, and can be read.
    pub fn is_known(&self) -> bool {
        self.low.is_finite() && self.high.is_finite()
    }

    /// The range of what a paper prints as this, in whole numbers.
    pub fn rounded(&self) -> [f64; 2] {
        [self.low - HALF_A_DIGIT, self.high + HALF_A_DIGIT]
    }

    /// Middle of the range.
    pub fn mean(&self) -> f64 {
        f64::midpoint(self.low, self.high)
    }
}

impl Paper {
    /// What the columns of its numbers are.
    pub fn columns(&self) -> &[String] {
        if self.at.is_empty() { &self.machines } else { &self.at }
    }

    /// The numbers of a row for each column, NaN where there is none.
    pub fn row(&self, quantity: Quantity, of: &str) -> Option<Vec<f64>> {
        let row = self.numbers.get(&quantity)?.get(of)?;
        Some(row.iter().map(PublishedNumber::mean).collect())
    }

    /// The number of a row in the column with this name.
    pub fn number(&self, quantity: Quantity, of: &str, at: &str) -> Option<PublishedNumber> {
        let column = self.columns().iter().position(|column| column == at)?;
        self.numbers.get(&quantity)?.get(of)?.get(column).copied().filter(PublishedNumber::is_known)
    }

    /// The first number of a row that is known.
    pub fn first(&self, quantity: Quantity, of: &str) -> Option<PublishedNumber> {
        self.numbers.get(&quantity)?.get(of)?.iter().copied().find(PublishedNumber::is_known)
    }

    /// All numbers of a quantity that are known: row, column and number.
    pub fn all(&self, quantity: Quantity) -> impl Iterator<Item = (&str, &str, PublishedNumber)> {
        let rows = self.numbers.get(&quantity).into_iter().flatten();
        let all = rows.flat_map(|(of, numbers)| {
            self.columns().iter().zip(numbers).map(move |(at, number)| (of.as_str(), at.as_str(), *number))
        });
        all.filter(|(.., number)| number.is_known())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_in_rows_and_columns() {
        let text = "source = \"?\"\nat = [\"1\", \"3\"]\n[handshake_ms]\nfull = [45, nan]\nresumed = [[3, 4], 2]\n";
        let paper: Paper = toml::from_str(text).unwrap();
        let number = |of, at| paper.number(Quantity::HandshakeMs, of, at).map(|number| number.rounded());
        assert_eq!(number("full", "1"), Some([44.5, 45.5]));
        assert_eq!([number("full", "3"), number("full", "2"), number("other", "1")], [None; 3]);
        assert_eq!(number("resumed", "1"), Some([2.5, 4.5]));
        assert_eq!(paper.all(Quantity::HandshakeMs).count(), 3);
        let json: Paper = serde_json::from_str(&serde_json::to_string(&paper).unwrap()).unwrap();
        assert_eq!(toml::to_string(&json).unwrap(), toml::to_string(&paper).unwrap());
        let wrong = toml::from_str::<Paper>("source = \"?\"\n[handshakes]\nfull = [1]\n").unwrap_err().to_string();
        assert!(wrong.contains("unknown published quantity `handshakes`"), "{wrong}");
    }
}
