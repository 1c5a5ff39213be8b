//! The workload of one URL or several.

use anyhow::{Result, ensure};
use tlsdyno_engine::load::{Expect, Object, Request, User, Workload};

use crate::load::options::Options;
use crate::load::url::Url;

/// Requests that a user makes before it begins anew. It only has to be long: the users share one sequence.
const REQUESTS_PER_USER: u32 = 65_536;

/// The URL and those of --also, each user requesting them by their weights.
pub fn workload(options: &Options, url: &Url, per_user: u32, body_bytes: u64) -> Result<Workload> {
    let users = options.users.unwrap_or(options.connections);
    let mut paths = vec![url.path.clone()];
    for text in &options.also {
        let other = Url::parse(text)?;
        ensure!(
            (other.tls, &other.host, other.port) == (url.tls, &url.host, url.port),
            "{text} is on another server; load each by a `tlsdyno load` of its own"
        );
        paths.push(other.path);
    }
    let weights = if options.weights.is_empty() { vec![1; paths.len()] } else { options.weights.clone() };
    ensure!(
        weights.len() == paths.len(),
        "--weights has {} numbers for {} URLs (the first one included)",
        weights.len(),
        paths.len()
    );
    let headers = options.header_lines();
    let object = |path| Object {
        method: options.method.clone(),
        path,
        headers: headers.clone(),
        body_bytes,
        expect: Expect { status: options.expect_status.0, body_bytes: None },
    };
    let request = |(index, object)| {
        let page_end = (index as u32 + 1).is_multiple_of(per_user);
        Request { object, page_end, ..Request::default() }
    };
    Ok(Workload {
        objects: paths.into_iter().map(object).collect(),
        requests: interleaved(&weights, REQUESTS_PER_USER).into_iter().enumerate().map(request).collect(),
        users: vec![User { requests: 0..REQUESTS_PER_USER }; users as usize],
        ..Workload::default()
    })
}

/// Indices of `weights`, each as often as its weight says and spread evenly: always the one that is furthest behind
/// (smooth weighted round robin, as in nginx).
fn interleaved(weights: &[u32], count: u32) -> Vec<u32> {
    let total: i64 = weights.iter().map(|weight| i64::from(*weight)).sum();
    let mut credit = vec![0i64; weights.len()];
    let mut next = || {
        credit.iter_mut().zip(weights).for_each(|(credit, weight)| *credit += i64::from(*weight));
        let best = (0..weights.len()).rev().max_by_key(|index| credit[*index]).unwrap_or(0);
        credit[best] -= total;
        best as u32
    };
    // Once all credits are used up it begins anew.
    let period: Vec<u32> = (0..total.min(count.into())).map(|_| next()).collect();
    period.iter().copied().cycle().take(count as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_interleaved_by_their_weights() {
        assert_eq!(interleaved(&[3, 1], 8), [0, 0, 1, 0, 0, 0, 1, 0]);
        assert_eq!(interleaved(&[1, 1, 1], 6), [0, 1, 2, 0, 1, 2]);
        assert_eq!(interleaved(&[1], 2), [0, 0]);
        assert_eq!(interleaved(&[3, 1], 3), [0, 0, 1]);
    }
}
