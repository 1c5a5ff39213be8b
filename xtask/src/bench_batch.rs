//! `bench-batch`: what batched RSA gains and costs (Shacham and Boneh 2001): time of a decryption by the size of the
//! batch, and latency over load, beside a closed form.

mod closed_form;

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::value_parser;
use openssl::pkey::Private;
use openssl::rsa::{Padding, Rsa};
use rustix::time::{ClockId, clock_gettime};
use tlsdyno::random::SplitMix64;
use tlsdyno_cryptoserver::batch::{Batches, Settings};
use tlsdyno_cryptoserver::batch_keys;
use tlsdyno_cryptoserver::premaster::{self, Decryptor};
use tlsdyno_native::batch_rsa::{BatchRsa, MEMBERS_MAX};

use crate::statistics::{interval_of_median, median, ratios};
use closed_form::Expected;

const VERSION: u16 = 0x0303;
const BITS: [u32; 3] = [1024, 2048, 4096];
/// Speed-ups of the decryption alone that Coarfa et al. (2006, section 5.1) give for Boneh and Shacham's system, whose
/// own abstract says 2.5 of RSA-1024.
const PUBLISHED: [(usize, f64); 2] = [(4, 2.5), (8, 5.0)];
/// Keys whose latency is measured.
const LATENCY_BITS: u32 = 2048;
const ARMS: [(usize, Duration); 4] =
    [(1, Duration::ZERO), (4, Duration::from_millis(2)), (8, Duration::from_millis(2)), (8, Duration::ZERO)];

/// Rates that keep the thread busy for more of the time than this, with full batches, have no latency.
const BUSY_MAX: f64 = 0.9;

/// What is measured.
#[derive(clap::Args)]
pub struct Arguments {
    /// Rounds; in each every size of batch is measured once, in turn
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = value_parser!(u32).range(6..))]
    rounds: u32,
    /// Visitors a second whose latency is measured
    #[arg(long, value_name = "N,N…", value_delimiter = ',', default_value = "100,500,1000,2000,3000,5000,8000")]
    rates: Vec<u32>,
    /// Seconds for each of these rates
    #[arg(long, value_name = "SECONDS", default_value_t = 1.5)]
    seconds: f64,
}

/// Keys of one modulus, and a block for each.
struct Site {
    keys: Vec<Rsa<Private>>,
    decryptors: Vec<Decryptor>,
    blocks: Vec<Vec<u8>>,
}

impl Site {
    fn new(bits: u32) -> Result<Site> {
        let keys = batch_keys::generate(bits, MEMBERS_MAX)?;
        let encrypt = |key: &Rsa<Private>| -> Result<Vec<u8>> {
            let mut block = vec![0; key.size() as usize];
            key.public_encrypt(&[3; premaster::BYTES], &mut block, Padding::PKCS1)?;
            Ok(block)
        };
        let blocks = keys.iter().map(encrypt).collect::<Result<_>>()?;
        let decryptors = keys.iter().cloned().map(Decryptor::new).collect::<Result<_>>()?;
        Ok(Site { keys, decryptors, blocks })
    }

    /// CPU time of a decryption in batches of this size, µs.
    fn us_each(&self, together: &mut BatchRsa, batch: usize, decryptions: usize) -> Result<f64> {
        let blocks: Vec<(usize, &[u8])> = self.blocks[..batch].iter().map(|one| &one[..]).enumerate().collect();
        let began = thread_cpu();
        for _ in 0..decryptions / batch {
            if batch == 1 {
                self.decryptors[0].decrypt(VERSION, blocks[0].1).map_err(anyhow::Error::msg)?;
                continue;
            }
            let plain = together.decrypt(&blocks).context("a batch failed")?;
            for ((member, block), plain) in blocks.iter().zip(plain) {
                self.decryptors[*member].secret_in(&plain, VERSION, block);
            }
        }
        Ok((thread_cpu() - began).as_secs_f64() * 1e6 / (decryptions / batch * batch) as f64)
    }
}

fn thread_cpu() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

/// Measures and prints both tables.
pub fn run(arguments: &Arguments) -> Result<()> {
    println!("| RSA | batch | µs each | a second of one CPU | speed-up | published |\n|---:|---:|---:|---:|---:|---:|");
    let mut measured = None;
    for bits in BITS {
        let site = Site::new(bits)?;
        let us_each = throughput(&site, bits, arguments.rounds)?;
        if bits == LATENCY_BITS {
            measured = Some((site, us_each));
        }
    }
    let (site, us_each) = measured.context("no keys whose latency is measured")?;
    println!(
        "\n| batch, waits | a second | mean size | closed form | mean ms | closed form | gathering | p99 ms | busy |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    let of_size: Vec<f64> = us_each.iter().zip(1u32..).map(|(us, size)| us * 1e-6 * f64::from(size)).collect();
    for (batch, wait) in ARMS {
        for rate in &arguments.rates {
            latency(&site, (batch, wait), f64::from(*rate), arguments.seconds, &of_size)?;
        }
    }
    Ok(())
}

/// Prints a line for some sizes of batches, and answers the CPU time of each decryption by size, µs.
fn throughput(site: &Site, bits: u32, rounds: u32) -> Result<Vec<f64>> {
    let mut together = BatchRsa::new(&site.keys)?;
    // About as long for each size of key.
    let decryptions = (200_000_000_000 / u64::from(bits).pow(3)).max(1) as usize * MEMBERS_MAX;
    let mut us_each = vec![Vec::new(); MEMBERS_MAX];
    for round in 0..rounds as usize {
        for place in 0..MEMBERS_MAX {
            let batch = (round + place) % MEMBERS_MAX + 1;
            us_each[batch - 1].push(site.us_each(&mut together, batch, decryptions)?);
        }
    }
    for batch in [1, 2, 4, 8] {
        let (own, each) = (&us_each[batch - 1], median(&us_each[batch - 1]));
        let gains = ratios(&us_each[0], own);
        let [low, high] = interval_of_median(&gains);
        let gain = format!("{:.2} [{low:.2}, {high:.2}]", median(&gains));
        let published = PUBLISHED.iter().find(|(size, _)| bits == 1024 && *size == batch);
        let published = published.map_or(String::new(), |(_, gain)| gain.to_string());
        println!("| {bits} | {batch} | {each:.1} | {:.0} | {gain} | {published} |", 1e6 / each);
    }
    Ok(us_each.iter().map(|one| median(one)).collect())
}

/// Visitors come at random (Poisson) to one thread that decrypts, the next to the next certificate. A latency is that
/// from the moment at which the visitor was to come.
fn latency(site: &Site, (batch, wait): (usize, Duration), per_s: f64, seconds: f64, of_size: &[f64]) -> Result<()> {
    if per_s * of_size[batch - 1] / batch as f64 > BUSY_MAX {
        return Ok(());
    }
    let expected = Expected::of(per_s, batch, wait, &of_size[..batch]);
    let batches = Batches::start(site.keys.clone(), Settings { batch, wait, threads: 1 })?;
    let (mut random, began, mut next) = (SplitMix64::new(1), Instant::now(), Duration::ZERO);
    let (told, answered) = channel();
    let visitors = (per_s * seconds) as usize;
    for visitor in 0..visitors {
        next += Duration::from_secs_f64(-random.uniform().ln() / per_s);
        while began.elapsed() < next {
            std::hint::spin_loop();
        }
        let (told, since) = (told.clone(), began + next);
        let done = move |secret: Result<_, &'static str>| {
            let _ = told.send(secret.map(|_| since.elapsed().as_secs_f64() * 1e3));
        };
        let member = visitor % MEMBERS_MAX;
        batches.add(member, VERSION, &site.blocks[member], Box::new(done));
    }
    let mut ms: Vec<f64> = answered.iter().take(visitors).collect::<Result<_, _>>().map_err(anyhow::Error::msg)?;
    ms.sort_by(f64::total_cmp);
    let (mean, size) = (ms.iter().sum::<f64>() / ms.len() as f64, visitors as f64 / batches.count() as f64);
    println!(
        "| {batch}, {} ms | {per_s:.0} | {size:.2} | {:.2} | {mean:.2} | {:.2} | {:.2} | {:.2} | {:.0} % |",
        wait.as_millis(),
        expected.size,
        expected.latency_s * 1e3,
        expected.gathering_s * 1e3,
        ms[ms.len() * 99 / 100],
        expected.busy * 100.0,
    );
    Ok(())
}
