//! `department`: a department's web site, synthetic, to the aggregates of Coarfa et al. 2006 section 2.2.2.
//!
//! Published: 100,000 requests in about 11,000 sessions (one per client address), 46 KB on average, a document corpus
//! of 530 MB (section 2.2), each user's requests totally ordered, one full handshake for each user. Not published: how
//! sizes, popularity and session lengths are distributed. Chosen here (docs/WORKLOADS.md gives the reasons):
//!
//! - sizes: lognormal body with a Pareto tail, parameters of SURGE (Barford and Crovella, SIGMETRICS 1998);
//! - popularity: Zipf, with each file of the corpus requested at least once;
//! - requests per user: lognormal;
//! - one connection for each request, which is what the published gain of the session cache implies.
//!
//! Distributions are not sampled but cut into equally likely parts (stratified), then sizes are exchanged between files
//! until the mean over requests is the published one. So every seed and scale has the published aggregates, and the
//! seed decides which file is popular, which is large, and who requests what.

use anyhow::{Result, ensure};
use tlsdyno_base::distribution::normal_quantile;
use tlsdyno_base::random::SplitMix64;
use tlsdyno_engine::load::{Request, Workload};

use super::{DocrootFile, Parts, add_user};

/// Requests at scale 1 (section 2.2.2).
const HITS: f64 = 100_000.0;
/// Sessions, that is users, at scale 1 (section 2.2.2).
const USERS: f64 = 11_000.0;
/// Document corpus at scale 1, bytes: 530 MB (section 2.2).
const CORPUS_BYTES: f64 = 530.0 * 1024.0 * 1024.0;
/// Mean response, bytes: 46 KB (section 2.2).
const MEAN_BYTES: f64 = 46.0 * 1024.0;
/// Zipf exponent of popularity; web servers and proxies: 0.6 to 1 (Breslau et al., INFOCOM 1999, find 0.64 to 0.83).
const ZIPF_EXPONENT: f64 = 0.8;
/// Spread of the requests per user on a logarithmic scale.
const REQUESTS_PER_USER_SIGMA: f64 = 1.1;
/// Scales the workload is made for: from 110 users (with fewer files their sizes cannot be arranged to the published
/// mean) to ten times the paper's corpus.
const SCALES: std::ops::RangeInclusive<f64> = 0.01..=10.0;

/// Makes the workload at `scale`: requests, users and corpus in proportion, the mean response as published.
pub(super) fn make(scale: f64, seed: u64) -> Result<Parts> {
    ensure!(
        SCALES.contains(&scale),
        "the department workload is made at scales from {} to {}, not {scale}; 1 is the paper's size",
        SCALES.start(),
        SCALES.end()
    );
    let count = |at_scale_1: f64| (at_scale_1 * scale).round() as usize;
    let (hits, users) = (count(HITS), count(USERS));
    // Size and popularity are independent as far as known, so the mean file is the mean response.
    let files = count(CORPUS_BYTES / MEAN_BYTES);
    let mut random = SplitMix64::new(seed);
    let uses = popularity(files, hits);
    let sizes = sizes(&uses, (CORPUS_BYTES * scale) as u64, MEAN_BYTES, &mut random);
    let mut order: Vec<u32> =
        (0..files as u32).flat_map(|file| std::iter::repeat_n(file, uses[file as usize] as usize)).collect();
    random.shuffle(&mut order);
    let mut lengths = apportion(&quantiles(users, lognormal(0.0, REQUESTS_PER_USER_SIGMA)), hits as u64, 1);
    random.shuffle(&mut lengths);
    Ok(assemble(&sizes, &order, &lengths))
}

/// How often each file is requested, most popular first: in proportion to rank^-[`ZIPF_EXPONENT`], at least once,
/// `hits` in all.
fn popularity(files: usize, hits: usize) -> Vec<u64> {
    let weights: Vec<f64> = (1..=files).map(|rank| (rank as f64).powf(-ZIPF_EXPONENT)).collect();
    apportion(&weights, hits as u64, 1)
}

/// The size of each file (indices as in `uses`), bytes: a heavy-tailed distribution that adds up to `corpus` over the
/// files and whose mean over requests is `mean`.
fn sizes(uses: &[u64], corpus: u64, mean: f64, random: &mut SplitMix64) -> Vec<u64> {
    let mut sizes = apportion(&quantiles(uses.len(), surge_size), corpus, MIN_FILE_BYTES);
    random.shuffle(&mut sizes);
    let hits: u64 = uses.iter().sum();
    let target = (mean * hits as f64) as i128;
    let total: i128 = uses.iter().zip(&sizes).map(|(uses, size)| i128::from(*uses) * i128::from(*size)).sum();
    let mut error = total - target;
    // Exchanging the sizes of two files changes the total over requests, not the corpus. Each exchange that brings the
    // total nearer is kept; there are so many possible ones that the error is soon far below a byte per request.
    let enough = hits as i128 * EXCHANGE_GOAL_BYTES;
    for _ in 0..EXCHANGES_PER_FILE * sizes.len() {
        if error.abs() <= enough {
            break;
        }
        let (one, other) = (random.below(sizes.len()), random.below(sizes.len()));
        let change =
            (i128::from(uses[one]) - i128::from(uses[other])) * (i128::from(sizes[other]) - i128::from(sizes[one]));
        if (error + change).abs() < error.abs() {
            sizes.swap(one, other);
            error += change;
        }
    }
    sizes
}

const MIN_FILE_BYTES: u64 = 64;
/// The mean response may differ from the published one by so much, bytes: 0.05 %.
const EXCHANGE_GOAL_BYTES: i128 = 23;
/// Exchanges tried for each file before the sizes are left as they are.
const EXCHANGES_PER_FILE: usize = 200;

/// File size at probability `p`, bytes, before scaling to the corpus (SURGE: Barford and Crovella 1998): 93 %
/// lognormal with mu 9.357 and sigma 1.318, the rest Pareto with exponent 1.1 from 133 KB on.
fn surge_size(p: f64) -> f64 {
    const BODY: f64 = 0.93;
    const TAIL_FROM: f64 = 133_000.0;
    const TAIL_EXPONENT: f64 = 1.1;
    if p < BODY {
        lognormal(9.357, 1.318)(p / BODY).min(TAIL_FROM)
    } else {
        TAIL_FROM * ((1.0 - p) / (1.0 - BODY)).powf(-1.0 / TAIL_EXPONENT)
    }
}

/// The middle of each of `count` equally likely parts of a distribution, given by its quantile function.
fn quantiles(count: usize, quantile: impl Fn(f64) -> f64) -> Vec<f64> {
    (0..count).map(|part| quantile((part as f64 + 0.5) / count as f64)).collect()
}

/// Quantile function of the lognormal distribution.
fn lognormal(mu: f64, sigma: f64) -> impl Fn(f64) -> f64 {
    move |p| (mu + sigma * normal_quantile(p)).exp()
}

/// Whole numbers in proportion to `weights`, each at least `least`, that add up to `total` exactly.
fn apportion(weights: &[f64], total: u64, least: u64) -> Vec<u64> {
    assert!(least * weights.len() as u64 <= total, "each part gets at least {least}");
    let parts = |factor: f64| weights.iter().map(move |weight| ((weight * factor) as u64).max(least));
    let sum: f64 = weights.iter().sum();
    // The largest factor whose parts do not exceed the total; the minimum takes from the others, so it is below total /
    // sum.
    let (mut low, mut high) = (0.0, total as f64 / sum);
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        if parts(middle).sum::<u64>() <= total { low = middle } else { high = middle }
    }
    let mut parts: Vec<u64> = parts(low).collect();
    // What rounding down left over goes, one each, to the parts that have more than the minimum: the heaviest first.
    let left = total - parts.iter().sum::<u64>();
    let mut heaviest: Vec<usize> = (0..weights.len()).collect();
    heaviest.sort_by(|one, other| weights[*other].total_cmp(&weights[*one]));
    for index in heaviest.into_iter().cycle().take(left as usize) {
        parts[index] += 1;
    }
    parts
}

/// The workload from the sizes of the files, the files in the order of request, and the requests of each user.
fn assemble(sizes: &[u64], order: &[u32], lengths: &[u64]) -> Parts {
    // Spread over folders, as on a real site and so that no folder is huge.
    let files: Vec<DocrootFile> = sizes
        .iter()
        .enumerate()
        .map(|(file, bytes)| DocrootFile { path: format!("/{:02}/{:05}.html", file % 100, file), bytes: *bytes })
        .collect();
    let mut workload = Workload { objects: files.iter().map(DocrootFile::object).collect(), ..Workload::default() };
    let request = |file: &u32| Request { object: *file, page_end: true, close_after: true, ..Request::default() };
    let mut requests = order.iter().map(request);
    for length in lengths {
        add_user(&mut workload, requests.by_ref().take(*length as usize));
    }
    Parts { workload, files }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Measured {
        hits: usize,
        users: usize,
        corpus_mb: f64,
        mean_kb: f64,
        uses: Vec<u64>,
        sizes: Vec<u64>,
        lengths: Vec<u32>,
    }

    fn measure(scale: f64, seed: u64) -> Measured {
        let parts = make(scale, seed).unwrap();
        let sizes: Vec<u64> = parts.files.iter().map(|file| file.bytes).collect();
        let mut uses = vec![0; sizes.len()];
        let mut sent = 0;
        for request in &parts.workload.requests {
            uses[request.object as usize] += 1;
            sent += sizes[request.object as usize];
        }
        let lengths: Vec<u32> =
            parts.workload.users.iter().map(|user| user.requests.end - user.requests.start).collect();
        assert_eq!(parts.workload.users.last().unwrap().requests.end as usize, parts.workload.requests.len());
        Measured {
            hits: parts.workload.requests.len(),
            users: lengths.len(),
            corpus_mb: sizes.iter().sum::<u64>() as f64 / (1 << 20) as f64,
            mean_kb: sent as f64 / parts.workload.requests.len() as f64 / 1024.0,
            uses,
            sizes,
            lengths,
        }
    }

    #[test]
    fn at_the_papers_size_it_has_the_published_aggregates() {
        for seed in 0..3 {
            let measured = measure(1.0, seed);
            assert_eq!(measured.hits, 100_000);
            assert_eq!(measured.users, 11_000);
            assert!((529.9..530.1).contains(&measured.corpus_mb), "corpus {} MB", measured.corpus_mb);
            assert!((45.9..46.1).contains(&measured.mean_kb), "mean {} KB, seed {seed}", measured.mean_kb);
        }
    }

    #[test]
    fn scaling_shrinks_hits_users_and_corpus_and_keeps_the_mean() {
        for scale in [0.01, 0.013, 0.03, 0.1, 0.5] {
            for seed in 0..10 {
                let measured = measure(scale, seed);
                assert_eq!(measured.hits, (100_000.0 * scale).round() as usize);
                assert_eq!(measured.users, (11_000.0 * scale).round() as usize);
                let corpus = measured.corpus_mb / scale;
                assert!((529.0..531.0).contains(&corpus), "corpus {corpus} MB at scale {scale}");
                assert!((measured.mean_kb - 46.0).abs() < 0.1, "mean {} KB at {scale}, seed {seed}", measured.mean_kb);
            }
        }
    }

    #[test]
    fn popularity_follows_zipf_and_every_file_is_requested() {
        let mut uses = measure(1.0, 1).uses;
        uses.sort_unstable_by(|one, other| other.cmp(one));
        assert!(*uses.last().unwrap() >= 1);
        // Slope of log(uses) against log(rank) between rank 1 and rank 1000.
        let slope = (uses[0] as f64 / uses[999] as f64).ln() / 1000.0_f64.ln();
        assert!((slope - ZIPF_EXPONENT).abs() < 0.03, "slope {slope}");
        let top_tenth: u64 = uses[..uses.len() / 10].iter().sum();
        assert!(
            (50_000..80_000).contains(&top_tenth),
            "the top tenth of the files gets {top_tenth} of 100,000 requests"
        );
    }

    #[test]
    fn sizes_have_a_heavy_tail_over_a_lognormal_body() {
        let mut sizes = measure(1.0, 2).sizes;
        sizes.sort_unstable();
        let (median, mean) = (sizes[sizes.len() / 2] as f64, sizes.iter().sum::<u64>() as f64 / sizes.len() as f64);
        assert!(mean / median > 3.0, "mean {mean}, median {median}");
        // Hill's estimate over the largest 3 % gives the Pareto exponent.
        let tail = &sizes[sizes.len() - sizes.len() * 3 / 100..];
        let hill = tail.len() as f64 / tail.iter().map(|size| (*size as f64 / tail[0] as f64).ln()).sum::<f64>();
        assert!((0.9..1.3).contains(&hill), "tail exponent {hill}");
        let largest_share = *sizes.last().unwrap() as f64 / sizes.iter().sum::<u64>() as f64;
        assert!(largest_share < 0.25, "one file is {largest_share} of the corpus");
    }

    #[test]
    fn some_users_come_once_and_some_stay_long() {
        let lengths = measure(1.0, 3).lengths;
        let once = lengths.iter().filter(|length| **length == 1).count();
        assert!((500..3_000).contains(&once), "{once} of 11,000 users make one request");
        let longest = *lengths.iter().max().unwrap();
        assert!((100..2_000).contains(&longest), "longest session {longest}");
    }

    #[test]
    fn seeds_differ_and_repeat() {
        let parts = |seed| make(0.01, seed).unwrap();
        assert_eq!(parts(1).workload, parts(1).workload);
        assert_ne!(parts(1).workload, parts(2).workload);
    }

    #[test]
    fn a_scale_out_of_range_is_refused() {
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9, 11.0] {
            assert!(make(scale, 1).unwrap_err().to_string().contains("scale"), "{scale}");
        }
    }

    #[test]
    fn the_normal_quantile_is_right() {
        for (p, expected) in [(0.5, 0.0), (0.975, 1.959_963_985), (0.01, -2.326_347_874), (0.999, 3.090_232_306)] {
            assert!((normal_quantile(p) - expected).abs() < 1e-6, "{p}");
        }
    }

    #[test]
    fn apportioned_parts_add_up() {
        assert_eq!(apportion(&[1.0, 1.0, 2.0], 8, 1), [2, 2, 4]);
        assert_eq!(apportion(&[1.0, 1000.0], 10, 3), [3, 7]);
        assert_eq!(apportion(&[5.0, 1.0, 1.0], 3, 1), [1, 1, 1]);
        let parts = apportion(&[0.1, 7.3, 2.2, 9.9], 1_001, 1);
        assert_eq!(parts.iter().sum::<u64>(), 1_001);
    }
}
