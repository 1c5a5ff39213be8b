//! Throughput of primitives by block size as data (Apostolopoulos et al. 2000, Figure 7): what TOML files hold and what
//! the flags of `tlsdyno profile primitives` build.

use anyhow::{Result, ensure};
use clap::ArgAction;
use serde::{Deserialize, Serialize};
use tlsdyno_base::choice::{choice, defaults_of};
use tlsdyno_record::model::{Measure, Paper, Quantity, Server};
use tlsdyno_runner::run::check::questions::{check_measure, check_paper};
use tlsdyno_tls::named;

named! {
    /// A primitive of OpenSSL.
    pub enum Algorithm: "primitive" {
        /// AES-128 in GCM: cipher and authentication in one
        Aes128Gcm = "aes-128-gcm",
        /// AES-256 in GCM
        Aes256Gcm = "aes-256-gcm",
        /// ChaCha20 with Poly1305
        ChaCha20Poly1305 = "chacha20-poly1305",
        /// AES-128 in CBC
        Aes128Cbc = "aes-128-cbc",
        /// AES-256 in CBC
        Aes256Cbc = "aes-256-cbc",
        /// HMAC with SHA-1
        HmacSha1 = "hmac-sha1",
        /// HMAC with SHA-256
        HmacSha256 = "hmac-sha256",
        /// SHA-1
        Sha1 = "sha1",
        /// SHA-256
        Sha256 = "sha256",
        /// SHA-384
        Sha384 = "sha384",
        /// RC4 (OpenSSL's legacy provider)
        Rc4 = "rc4",
        /// DES in CBC (OpenSSL's legacy provider)
        Des = "des",
        /// DES three times, in CBC
        TripleDes = "3des",
        /// MD5
        Md5 = "md5",
    }
}

/// What kind of primitive it is, as the program that measures calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlgorithmKind {
    Cipher,
    Digest,
    /// A hash with a key.
    Hmac,
}

impl Algorithm {
    pub fn usual() -> impl Iterator<Item = Algorithm> {
        Algorithm::ALL.into_iter().filter(|algorithm| !algorithm.is_legacy())
    }

    /// It belongs to the TLS of the year 2000 alone.
    pub fn is_legacy(self) -> bool {
        matches!(self, Algorithm::Rc4 | Algorithm::Des | Algorithm::TripleDes | Algorithm::Md5)
    }

    /// Its kind, and OpenSSL's name of it; of an HMAC that of its hash.
    pub fn in_openssl(self) -> (AlgorithmKind, &'static str) {
        use AlgorithmKind::{Cipher, Digest, Hmac};
        match self {
            Algorithm::Aes128Gcm => (Cipher, "AES-128-GCM"),
            Algorithm::Aes256Gcm => (Cipher, "AES-256-GCM"),
            Algorithm::ChaCha20Poly1305 => (Cipher, "ChaCha20-Poly1305"),
            Algorithm::Aes128Cbc => (Cipher, "AES-128-CBC"),
            Algorithm::Aes256Cbc => (Cipher, "AES-256-CBC"),
            Algorithm::HmacSha1 => (Hmac, "SHA1"),
            Algorithm::HmacSha256 => (Hmac, "SHA256"),
            Algorithm::Sha1 => (Digest, "SHA1"),
            Algorithm::Sha256 => (Digest, "SHA256"),
            Algorithm::Sha384 => (Digest, "SHA384"),
            Algorithm::Rc4 => (Cipher, "RC4"),
            Algorithm::Des => (Cipher, "DES-CBC"),
            Algorithm::TripleDes => (Cipher, "DES-EDE3-CBC"),
            Algorithm::Md5 => (Digest, "MD5"),
        }
    }

    /// The suite whose records it encrypts, by OpenSSL's name, and what does the MAC beside it; `None`: no suite that
    /// today's libssl still has.
    pub fn record_suite(self) -> Option<(&'static str, Option<Algorithm>)> {
        match self {
            Algorithm::Aes128Gcm => Some(("TLS_AES_128_GCM_SHA256", None)),
            Algorithm::Aes256Gcm => Some(("TLS_AES_256_GCM_SHA384", None)),
            Algorithm::ChaCha20Poly1305 => Some(("TLS_CHACHA20_POLY1305_SHA256", None)),
            Algorithm::Aes128Cbc => Some(("ECDHE-RSA-AES128-SHA", Some(Algorithm::HmacSha1))),
            Algorithm::Aes256Cbc => Some(("ECDHE-RSA-AES256-SHA", Some(Algorithm::HmacSha1))),
            _ => None,
        }
    }
}

/// Throughput of primitives by block size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrimitivesExperiment {
    /// What it is to answer, one sentence.
    pub question: String,
    pub primitives: Primitives,
    /// The server whose libraries are measured.
    #[serde(default)]
    pub server: Server,
    #[serde(default)]
    pub measure: Measure,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Paper>,
}

/// Primitives and sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct Primitives {
    /// Bytes of each call, ascending
    // Those of Apostolopoulos et al. 2000, Figure 7, up to a full TLS record.
    #[arg(long = "sizes", value_name = "BYTES", value_delimiter = ',', default_value = "8,64,256,1024,4096,16384")]
    pub sizes_bytes: Vec<u64>,
    /// Which primitives [default: those of today's TLS]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = choice(Algorithm::ALL))]
    #[arg(default_values_t = Algorithm::usual(), hide_default_value = true)]
    pub algorithms: Vec<Algorithm>,
    /// Write no TLS records beside bare primitives
    #[arg(long = "no-records", action = ArgAction::SetFalse)]
    pub records: bool,
    /// Do not run `openssl speed` in turn, which takes a second for each primitive in each round; --quick does not
    #[arg(long = "no-check", action = ArgAction::SetFalse)]
    pub check: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrimitiveCell {
    pub algorithm: Algorithm,
    pub by: MeasuredBy,
    /// Bytes of each call.
    pub size_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasuredBy {
    /// The primitive is called.
    Bare,
    /// libssl writes a record.
    Record,
    /// `openssl speed` measures.
    OpensslSpeed,
}

const SIZE_MAX: u64 = 1 << 20;
/// Most bytes of a TLS record (RFC 8446 section 5.1).
const RECORD_MAX: u64 = 1 << 14;
/// The size at which `openssl speed` is run, where it is among the sizes.
const CHECKED_SIZE: u64 = 4096;

impl Default for Primitives {
    fn default() -> Primitives {
        defaults_of()
    }
}

impl PrimitivesExperiment {
    /// Refuses what cannot be measured, with the remedy.
    pub fn check(&self) -> Result<()> {
        let Primitives { algorithms, sizes_bytes, .. } = &self.primitives;
        ensure!(!algorithms.is_empty(), "--algorithms names the primitives to measure, for example aes-128-gcm,sha256");
        let is_twice = |(index, one): (usize, &Algorithm)| algorithms[..index].contains(one);
        ensure!(!algorithms.iter().enumerate().any(is_twice), "--algorithms names one of them twice");
        ensure!(!sizes_bytes.is_empty(), "--sizes names the bytes of each call, for example 64,4096");
        ensure!(sizes_bytes.windows(2).all(|pair| pair[0] < pair[1]), "--sizes must ascend: they are points of a line");
        let fits = |size: &u64| (1..=SIZE_MAX).contains(size);
        ensure!(sizes_bytes.iter().all(fits), "--sizes are between 1 and {SIZE_MAX} bytes");
        check_measure(&self.measure, "servers under load; primitives are measured in a process of their own")?;
        let names: Vec<&str> = algorithms.iter().map(|algorithm| algorithm.name()).collect();
        self.paper.as_ref().map_or(Ok(()), |paper| check_paper(paper, &[(Quantity::MbitPerS, &names)]))
    }

    /// What is measured: the sizes of each primitive bare, then as records, then by `openssl speed`.
    pub fn cells(&self) -> Vec<PrimitiveCell> {
        let Primitives { algorithms, sizes_bytes, records, check } = &self.primitives;
        let checked = self.checked_size();
        let mut cells = Vec::new();
        for &algorithm in algorithms {
            let cell = |by| move |size_bytes: &u64| PrimitiveCell { algorithm, by, size_bytes: *size_bytes };
            cells.extend(sizes_bytes.iter().map(cell(MeasuredBy::Bare)));
            let has_records = *records && algorithm.record_suite().is_some();
            let of_record = sizes_bytes.iter().filter(|size| has_records && **size <= RECORD_MAX);
            cells.extend(of_record.map(cell(MeasuredBy::Record)));
            cells.extend(checked.iter().filter(|_| *check).map(cell(MeasuredBy::OpensslSpeed)));
        }
        cells
    }

    fn checked_size(&self) -> Option<u64> {
        let sizes = &self.primitives.sizes_bytes;
        sizes.iter().copied().find(|size| *size == CHECKED_SIZE).or(sizes.last().copied())
    }
}

pub fn size_name(bytes: u64) -> String {
    format!("{bytes} B")
}

impl std::fmt::Display for PrimitiveCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PrimitiveCell { algorithm, by, size_bytes } = self;
        match by {
            MeasuredBy::Bare => write!(f, "{algorithm}, {size_bytes} B"),
            MeasuredBy::Record => write!(f, "{algorithm} record, {size_bytes} B"),
            MeasuredBy::OpensslSpeed => write!(f, "{algorithm} by openssl speed, {size_bytes} B"),
        }
    }
}

/// The primitives of a record. In a block `hits` are calls, `body_bytes` their bytes, `server_cpu_ns` the CPU time of
/// the process that calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrimitivesRecord {
    pub experiment: PrimitivesExperiment,
    /// The cells, in the order of the configurations.
    pub cells: Vec<PrimitiveCell>,
    /// The file that was measured.
    pub libcrypto: String,
    /// The version that it says it has.
    pub libcrypto_version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment() -> PrimitivesExperiment {
        PrimitivesExperiment {
            question: "?".to_owned(),
            primitives: Primitives::default(),
            server: Server::default(),
            measure: Measure::default(),
            paper: None,
        }
    }

    #[test]
    fn cells_are_sizes_records_and_one_check_of_each_primitive() {
        let mut experiment = experiment();
        experiment.primitives.algorithms = vec![Algorithm::Aes128Gcm, Algorithm::Sha1];
        experiment.primitives.sizes_bytes = vec![8, 4096, 65536];
        let names: Vec<String> = experiment.cells().iter().map(PrimitiveCell::to_string).collect();
        assert_eq!(names.len(), (3 + 2 + 1) + (3 + 1), "{names:?}");
        assert!(names.contains(&"aes-128-gcm record, 4096 B".to_owned()), "{names:?}");
        assert!(names.contains(&"sha1 by openssl speed, 4096 B".to_owned()), "{names:?}");
        let read: PrimitivesExperiment = toml::from_str(&toml::to_string(&experiment).unwrap()).unwrap();
        assert_eq!(read, experiment);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_flag() {
        let refused = |change: &dyn Fn(&mut Primitives), word: &str| {
            let mut experiment = experiment();
            change(&mut experiment.primitives);
            let said = experiment.check().unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        };
        experiment().check().unwrap();
        refused(&|of| of.algorithms.clear(), "--algorithms");
        refused(&|of| of.algorithms = vec![Algorithm::Md5, Algorithm::Md5], "twice");
        refused(&|of| of.sizes_bytes.clear(), "--sizes");
        refused(&|of| of.sizes_bytes = vec![64, 8], "ascend");
        refused(&|of| of.sizes_bytes = vec![0, 8], "between 1");
        refused(&|of| of.sizes_bytes = vec![2 << 20], "1048576");
    }
}
