//! From blocks to locks for each connection: differences of blocks that follow each other.

use std::collections::BTreeSet;

use anyhow::Result;
use serde::Serialize;
use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::exchange::Reach;
use tlsdyno_record::store::{Block, LockOperation, LockSite, Record, Warning};

use crate::steps::StepId;
use crate::{CostRecord, Identity, Measured};

/// The beginnings of the names of files that are TLS libraries.
const TLS_LIBRARIES: &str = "libssl libcrypto libgnutls libnettle libhogweed libgmp libtasn1 libp11-kit libnss3 \
                             libnssutil3 libsoftokn3 libfreebl libnspr4 libplc4 libplds4 libmbed libwolfssl libs2n \
                             librustls libbotan";
const C_LIBRARIES: &str = "libc.so libc- libpthread ld-linux ld-musl";
const ALLOCATORS: &str = "libjemalloc libtcmalloc libmimalloc";
/// Words in the names of functions of a C library's allocator.
const ALLOCATION: &str = "malloc calloc realloc free memalign arena systrim";

/// Whose code does something with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    TlsLibrary,
    /// The server's program, with the libraries that are linked into it.
    Program,
    Allocator,
    CLibrary,
    /// Other libraries, and modules.
    Other,
}

/// For each connection. Both ends of an interval are the least and the greatest difference, no confidence: where they
/// are equal, the count is exact; where they are infinite, there is one difference only.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LockCounts {
    pub locked_instructions_count: Estimate,
    pub read_locks_count: Estimate,
    pub write_locks_count: Estimate,
    pub mutexes_count: Estimate,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LocksSummary {
    pub servers: Vec<ServerLocks>,
    #[serde(skip)]
    pub rounds: u32,
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerLocks {
    #[serde(flatten)]
    pub identity: Identity,
    pub steps: Vec<StepLocks>,
}

/// Of one kind of connection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepLocks {
    pub step: String,
    #[serde(skip)]
    pub id: StepId,
    /// Number of connections that were counted.
    pub connections: u64,
    /// All instructions in user space.
    pub instructions_count: Estimate,
    #[serde(flatten)]
    pub counts: LockCounts,
    pub owners: Vec<OwnerLocks>,
    /// Places that differ between blocks of unlike length, most frequent first.
    pub sites: Vec<SiteLocks>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OwnerLocks {
    pub owner: Owner,
    #[serde(flatten)]
    pub counts: LockCounts,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SiteLocks {
    pub operation: LockOperation,
    pub owner: Owner,
    pub object: String,
    pub function: String,
    pub count: Estimate,
}

impl Owner {
    pub fn of(object: &str, function: &str) -> Owner {
        let is_one_of = |names: &str| names.split(' ').any(|name| object.starts_with(name));
        let allocates = || ALLOCATION.split(' ').any(|word| function.contains(word));
        match () {
            () if is_one_of(TLS_LIBRARIES) => Owner::TlsLibrary,
            () if is_one_of(ALLOCATORS) || is_one_of(C_LIBRARIES) && allocates() => Owner::Allocator,
            () if is_one_of(C_LIBRARIES) => Owner::CLibrary,
            () if object.contains(".so") => Owner::Other,
            () => Owner::Program,
        }
    }
}

type Place<'a> = (LockOperation, &'a str, &'a str);

fn place(site: &LockSite) -> Place<'_> {
    (site.operation, &site.object, &site.function)
}

/// One block less a shorter one of the same configuration.
struct Pair<'a>([&'a Block; 2]);

impl Pair<'_> {
    /// For each connection.
    fn each(&self, count: impl Fn(&Block) -> u64) -> f64 {
        let [first, second] = self.0.map(|block| count(block) as f64);
        (second - first) / (self.0[1].hits as f64 - self.0[0].hits as f64)
    }
}

fn estimate(pairs: &[Pair<'_>], count: impl Fn(&Block) -> u64) -> Estimate {
    let each: Vec<f64> = pairs.iter().map(|pair| pair.each(&count)).collect();
    let value = each.iter().sum::<f64>() / each.len() as f64;
    let low = each.iter().copied().fold(f64::INFINITY, f64::min);
    let high = each.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match each.len() {
        0 | 1 => Estimate::without_interval(value),
        _ if low == high => Estimate { value: low, low, high },
        _ => Estimate { value, low, high },
    }
}

/// Of sites that are `wanted`.
fn counts(pairs: &[Pair<'_>], wanted: impl Fn(&LockSite) -> bool) -> LockCounts {
    let of = |operation: LockOperation| {
        let is = |site: &&LockSite| site.operation == operation && wanted(site);
        estimate(pairs, |block| block.locks.iter().filter(is).map(|site| site.count).sum())
    };
    LockCounts {
        locked_instructions_count: of(LockOperation::Instruction),
        read_locks_count: of(LockOperation::Read),
        write_locks_count: of(LockOperation::Write),
        mutexes_count: of(LockOperation::Mutex),
    }
}

impl LockCounts {
    pub fn all(&self) -> [Estimate; 4] {
        [self.locked_instructions_count, self.read_locks_count, self.write_locks_count, self.mutexes_count]
    }
}

impl LocksSummary {
    /// Fails on a record of another kind.
    pub fn of(record: &Record) -> Result<LocksSummary> {
        let of = record.kind_part.understood::<CostRecord>()?;
        let mut configuration = 0..;
        let server = |(number, measured): (usize, &Measured)| {
            let own: Vec<usize> = configuration.by_ref().take(measured.steps.len()).collect();
            let steps = measured.steps.iter().zip(own).filter_map(|(step, at)| StepLocks::of(record, at, &step.id));
            ServerLocks { identity: measured.identity(number), steps: steps.collect() }
        };
        let servers = of.servers.iter().enumerate().map(server).collect();
        let rounds = record.blocks.iter().map(|block| block.round + 1).max().unwrap_or(0);
        Ok(LocksSummary { servers, rounds, warnings: record.warnings.clone() })
    }
}

impl StepLocks {
    /// `None`: it has no two blocks of unlike length.
    fn of(record: &Record, configuration: usize, id: &StepId) -> Option<StepLocks> {
        let is_own = |block: &&Block| block.valid && block.configuration == configuration;
        let mut blocks: Vec<&Block> = record.blocks.iter().filter(is_own).collect();
        blocks.sort_by_key(|block| block.round);
        let pairs = blocks.chunks_exact(2).map(|blocks| Pair([blocks[0], blocks[1]]));
        let pairs: Vec<Pair> = pairs.filter(|pair| pair.0[0].hits != pair.0[1].hits).collect();
        let in_pairs = pairs.iter().flat_map(|pair| pair.0).flat_map(|block| &block.locks);
        let places: BTreeSet<Place> = in_pairs.map(place).collect();
        let site = |of: Place| SiteLocks {
            operation: of.0,
            owner: Owner::of(of.1, of.2),
            object: of.1.to_owned(),
            function: of.2.to_owned(),
            count: estimate(&pairs, |block| {
                block.locks.iter().filter(|site| place(site) == of).map(|site| site.count).sum()
            }),
        };
        let mut sites: Vec<SiteLocks> = places.into_iter().map(site).filter(|site| site.count.value != 0.0).collect();
        sites.sort_by(|one, other| other.count.value.total_cmp(&one.count.value));
        let mut owners: Vec<Owner> = sites.iter().map(|site| site.owner).collect();
        owners.sort();
        owners.dedup();
        let of_owner = |owner| {
            let is_own = |site: &LockSite| Owner::of(&site.object, &site.function) == owner;
            OwnerLocks { owner, counts: counts(&pairs, is_own) }
        };
        (!pairs.is_empty()).then(|| StepLocks {
            step: told(id),
            id: id.clone(),
            connections: blocks.iter().map(|block| block.connections).sum(),
            instructions_count: estimate(&pairs, |block| block.instructions.unwrap_or_default()),
            counts: counts(&pairs, |_| true),
            owners: owners.into_iter().map(of_owner).collect(),
            sites,
        })
    }
}

/// What is counted, for people.
fn told(id: &StepId) -> String {
    let what = if id.resumes.is_some() { "resumed handshake" } else { "full handshake" };
    crate::label(match (id.more_requests, id.reach) {
        (1.., _) => "next request on the connection".to_owned(),
        (0, Reach::Answered) => format!("{what}, one request"),
        (0, _) => what.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of these lengths, each of which begins with 5 locked instructions in libc.
    fn record(lengths: &[u64]) -> Record {
        let mut record = Record::begun_now("?", 1);
        for (round, length) in (0..).zip(lengths.iter().copied()) {
            let site = |operation, object: &str, function: &str, count| LockSite {
                operation,
                object: object.to_owned(),
                function: function.to_owned(),
                count,
            };
            let locks = vec![
                site(LockOperation::Read, "libcrypto.so.3", "EVP_MD_fetch", 7 * length),
                site(LockOperation::Instruction, "libc.so.6", "malloc_consolidate", 3 * length + u64::from(round)),
                site(LockOperation::Instruction, "libc.so.6", "pthread_rwlock_rdlock", 5),
                site(LockOperation::Instruction, "nginx", "ngx_event_accept", length),
            ];
            let block = Block { round, hits: length, connections: length, locks, valid: true, ..Block::default() };
            record.blocks.push(Block { instructions: Some(100 + 1000 * length), ..block });
        }
        record
    }

    fn of(lengths: &[u64]) -> Option<StepLocks> {
        let id = StepId::new(tlsdyno_tls::Version::Tls13, Reach::Answered);
        StepLocks::of(&record(lengths), 0, &id)
    }

    #[test]
    fn what_a_block_begins_with_is_in_no_count_and_equal_differences_are_exact() {
        let of = of(&[32, 64, 32, 64]).unwrap();
        let exact = |value: f64| Estimate { value, low: value, high: value };
        assert_eq!((of.instructions_count, of.counts.read_locks_count), (exact(1000.0), exact(7.0)));
        assert_eq!((of.counts.write_locks_count, of.connections), (exact(0.0), 192));
        let owners: Vec<Owner> = of.owners.iter().map(|of| of.owner).collect();
        assert_eq!(owners, [Owner::TlsLibrary, Owner::Program, Owner::Allocator]);
        assert_eq!(of.owners[1].counts.locked_instructions_count, exact(1.0));
        // One more in each second block.
        assert_eq!(of.counts.locked_instructions_count, exact(4.0 + 1.0 / 32.0));
        let sites: Vec<&str> = of.sites.iter().map(|site| site.function.as_str()).collect();
        assert_eq!(sites, ["EVP_MD_fetch", "malloc_consolidate", "ngx_event_accept"]);
    }

    #[test]
    fn one_difference_does_not_tell_whether_it_repeats_and_none_tells_nothing() {
        assert!(!of(&[32, 64, 32]).unwrap().counts.read_locks_count.has_interval());
        assert_eq!([of(&[32]), of(&[32, 32]), of(&[])], [None, None, None]);
        let unequal = of(&[32, 64, 64, 32]).unwrap().counts.locked_instructions_count;
        assert!(unequal.low < unequal.value && unequal.value < unequal.high, "{unequal:?}");
    }

    #[test]
    fn code_has_owners_by_its_file_and_the_allocator_is_apart() {
        let owners = [
            ("libssl.so.3", "SSL_new", Owner::TlsLibrary),
            ("libssl3.so", "SSL_ImportFD", Owner::TlsLibrary),
            ("haproxy", "malloc_trim_all", Owner::Program),
            ("libc.so.6", "_int_free", Owner::Allocator),
            ("libc.so.6", "pthread_mutex_lock", Owner::CLibrary),
            ("libjemalloc.so.2", "x", Owner::Allocator),
            ("ngx_http_echo_module.so", "x", Owner::Other),
        ];
        assert!(owners.iter().all(|(object, function, owner)| Owner::of(object, function) == *owner));
    }
}
