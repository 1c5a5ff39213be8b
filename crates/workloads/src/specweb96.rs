//! `specweb96`: the files and their popularity in SPECweb96, as Apostolopoulos et al. 2000 describe it (Securing
//! Electronic Commerce: Reducing the SSL Overhead).
//!
//! Published: 36 files in four classes, nine sizes each: 0.1 to 0.9 KB, 1 to 9 KB, 10 to 90 KB, 100 to 900 KB; 35, 50,
//! 14 and 1 % of the requests go to the classes; within a class they follow a Poisson distribution around the middle.
//! Not published: where the distribution is cut and who asks how often. Chosen here (docs/WORKLOADS.md gives the
//! reasons):
//!
//! - the Poisson distribution is cut to the nine files, its rate such that the mean is the middle one;
//! - a user makes 100 requests (or another number, where blocks must be shorter), one outstanding at a time, each on a
//!   connection of its own (as with HTTP/1.0; here HTTP/1.1 with `Connection: close`); of every 100 requests exactly
//!   35, 50, 14 and 1 go to the classes;
//! - within a class, files are taken evenly rather than independently: 1 % of the requests bring a third of the bytes,
//!   and any block of users must be equal work.

use anyhow::{Result, ensure};
use tlsdyno_base::random::SplitMix64;
use tlsdyno_engine::load::{Request, User, Workload};

use super::{DocrootFile, Parts};

/// Requests to each class among a hundred.
pub(super) const PER_CLASS: [usize; 4] = [35, 50, 14, 1];
/// Files of one class, 1 to 9 times its smallest.
pub(super) const FILES_PER_CLASS: usize = 9;
/// Smallest file of each class in tenths of a KB.
const SMALLEST_TENTHS_KB: [u64; 4] = [1, 10, 100, 1000];
/// Rate of the Poisson distribution whose mean, cut to 1 to 9, is 5.
const RATE: f64 = 5.200_148_641_207;

/// Makes the workload: `users` with so many requests each. `seed` decides the order of requests.
pub(super) fn make(users: u32, seed: u64, requests_per_user: u32) -> Result<Parts> {
    let most = u32::MAX / requests_per_user.max(1);
    ensure!(
        (1..=most).contains(&users) && requests_per_user > 0,
        "the specweb96 workload is made for 1 to {most} users of at least one request, not {users} of \
         {requests_per_user}"
    );
    let files = files("/file_set");
    let mut workload = Workload { objects: files.iter().map(DocrootFile::object).collect(), ..Workload::default() };
    let mut random = SplitMix64::new(seed);
    let mut classes: Vec<usize> = (0..4).flat_map(|class| std::iter::repeat_n(class, PER_CLASS[class])).collect();
    let mut choices: [Even; 4] = std::array::from_fn(|_| Even::new(random.next_u64()));
    let limits = limits(&poisson());
    for number in 0..users * requests_per_user {
        let place = number as usize % classes.len();
        if place == 0 {
            random.shuffle(&mut classes);
        }
        let class = classes[place];
        let object = (class * FILES_PER_CLASS + choices[class].next(&limits)) as u32;
        workload.requests.push(Request { object, page_end: true, close_after: true, ..Request::default() });
    }
    let of_user = |user| User { requests: user * requests_per_user..(user + 1) * requests_per_user };
    workload.users = (0..users).map(of_user).collect();
    Ok(Parts { workload, files })
}

/// The 36 files of a directory, named as SPEC's file sets were: `class2_3` is the third file of the class from 10 to
/// 90 KB.
pub(super) fn files(directory: &str) -> Vec<DocrootFile> {
    let mut files = Vec::new();
    for (class, smallest) in SMALLEST_TENTHS_KB.iter().enumerate() {
        for number in 1..=FILES_PER_CLASS as u64 {
            let bytes = (number * smallest * 1024 + 5) / 10;
            files.push(DocrootFile { path: format!("{directory}/class{class}_{number}"), bytes });
        }
    }
    files
}

fn poisson() -> [f64; FILES_PER_CLASS] {
    let mut weight = 1.0;
    std::array::from_fn(|index| {
        weight *= RATE / (index + 1) as f64;
        weight
    })
}

/// Where the part of each of these weights ends, in units of 2^-64.
pub(super) fn limits(weights: &[f64]) -> Vec<u64> {
    let total: f64 = weights.iter().sum();
    let mut passed = 0.0;
    let limit = |weight: &f64| {
        passed += weight;
        (passed / total * 2.0_f64.powi(64)) as u64
    };
    let mut limits: Vec<u64> = weights.iter().map(limit).collect();
    limits.last_mut().into_iter().for_each(|last| *last = u64::MAX);
    limits
}

/// Points spread evenly over the unit interval: multiples of the golden ratio (Weyl's sequence).
pub(super) struct Even {
    state: u64,
}

impl Even {
    pub(super) fn new(state: u64) -> Even {
        Even { state }
    }

    pub(super) fn next(&mut self, limits: &[u64]) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        limits.iter().position(|limit| self.state <= *limit).unwrap_or(limits.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(parts: &Parts) -> Vec<u64> {
        let mut hits = vec![0; parts.workload.objects.len()];
        parts.workload.requests.iter().for_each(|request| hits[request.object as usize] += 1);
        hits
    }

    #[test]
    fn it_has_the_published_files_classes_and_mean() {
        for (users, seed) in [(100, 1), (1_000, 7)] {
            let parts = make(users, seed, 100).unwrap();
            let sizes: Vec<u64> = parts.files.iter().map(|file| file.bytes).collect();
            assert_eq!(sizes.len(), 36);
            assert_eq!((sizes[0], sizes[8], sizes[9], sizes[35]), (102, 922, 1024, 900 * 1024));
            let hits = hits(&parts);
            for (class, share) in [35, 50, 14, 1].into_iter().enumerate() {
                let of_class = &hits[class * 9..class * 9 + 9];
                assert_eq!(of_class.iter().sum::<u64>(), share * u64::from(users), "class {class}");
            }
            let bytes: u64 = sizes.iter().zip(&hits).map(|(size, hits)| size * hits).sum();
            let mean_kb = bytes as f64 / f64::from(users * 100) / 1024.0;
            assert!((14.4..14.9).contains(&mean_kb), "about 15 KB on average: {mean_kb}");
        }
    }

    #[test]
    fn within_a_class_requests_are_poisson_around_the_middle() {
        let hits = hits(&make(2_000, 3, 100).unwrap());
        let of_class = &hits[9..18];
        // Neighbours of a Poisson distribution are in the ratio of rate to number.
        for number in 2..=9_usize {
            let ratio = of_class[number - 1] as f64 / of_class[number - 2] as f64;
            assert!((ratio / (RATE / number as f64) - 1.0).abs() < 0.01, "file {number}: {ratio}");
        }
        assert_eq!(of_class.iter().max(), of_class.get(4), "the middle one is asked for most");
    }

    #[test]
    fn blocks_of_users_are_equal_work() {
        let parts = make(2_000, 5, 10).unwrap();
        let work: Vec<u64> = parts
            .workload
            .requests
            .chunks(2_000)
            .map(|block| block.iter().map(|request| parts.files[request.object as usize].bytes).sum())
            .collect();
        let (least, most) = (*work.iter().min().unwrap() as f64, *work.iter().max().unwrap() as f64);
        assert!(most / least < 1.05, "{least} to {most} bytes");
    }
}
