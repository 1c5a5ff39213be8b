//! Warm-ups in which requests fail.

use std::collections::BTreeMap;

use anyhow::Result;
use tlsdyno_record::store::{Block, Warning};

/// Maximum number of warm-ups in which some requests fail.
const WARM_UPS_MAX: u32 = 3;

/// Warms up. Repeats with a warning where some requests fail: only a server that fails each time cannot serve.
pub fn warmed(mut once: impl FnMut() -> Result<Block>) -> Result<(Block, Option<Warning>)> {
    let (mut block, mut failed) = (once()?, BTreeMap::<String, u64>::new());
    for _ in 1..WARM_UPS_MAX {
        // Of a server that answers nothing no repetition tells more.
        if block.errors.is_empty() || block.hits == 0 {
            break;
        }
        block.errors.iter().for_each(|(kind, count)| *failed.entry(kind.clone()).or_default() += count);
        block = once()?;
    }
    let kinds: Vec<String> = failed.iter().map(|(kind, count)| format!("{count} ({kind})")).collect();
    let what = format!("requests failed in a warm-up, which was repeated: {}", kinds.join(", "));
    let remedy = "What was measured has its own count of failures; the server's error log may say why";
    Ok((block, (!kinds.is_empty()).then(|| Warning::new("warm_up_errors", what).with_remedy(remedy))))
}

/// Number of consecutive slices of a warm-up that must cost the same.
const SLICES_ALIKE: usize = 32;

/// The last slices of a warm-up are not cheaper than those before by a twentieth.
pub fn is_settled(costs_ns: &[f64]) -> bool {
    let least = |costs: &[f64]| costs.iter().copied().fold(f64::INFINITY, f64::min);
    let (before, last) = costs_ns.split_at(costs_ns.len().saturating_sub(SLICES_ALIKE));
    !before.is_empty() && least(last) >= 0.95 * least(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Warm-ups with so many failed requests each, of so many hits.
    fn warm_ups(failures: &[u64], hits: u64) -> (usize, Block, Option<String>) {
        let mut count = 0;
        let (block, warning) = warmed(|| {
            let failed = failures[count.min(failures.len() - 1)];
            count += 1;
            let errors = (failed > 0).then(|| ("reset".to_owned(), failed)).into_iter().collect();
            Ok(Block { errors, hits, ..Block::default() })
        })
        .unwrap();
        (count, block, warning.map(|warning| warning.to_string()))
    }

    #[test]
    fn a_warm_up_with_failed_requests_is_repeated_and_counted() {
        let (count, block, said) = warm_ups(&[0], 9);
        assert!(count == 1 && block.errors.is_empty() && said.is_none());
        let (count, block, said) = warm_ups(&[1, 2, 0], 9);
        assert!(count == 3 && block.errors.is_empty(), "{count}");
        assert!(said.unwrap().contains("repeated: 3 (reset)"));
        let (count, block, _) = warm_ups(&[1], 9);
        assert!(count == WARM_UPS_MAX as usize && !block.errors.is_empty(), "who fails each time is left out");
        assert_eq!(warm_ups(&[1], 0).0, 1, "who answers nothing is not asked again");
    }

    #[test]
    fn a_server_is_warm_when_its_connections_become_no_cheaper() {
        let settles_after = |costs: &[f64]| (1..=costs.len()).find(|count| is_settled(&costs[..*count]));
        assert_eq!(settles_after(&[100.0; 99]), Some(SLICES_ALIKE + 1));
        // A busy machine.
        let busy: Vec<f64> = (0..99).map(|slice| 100.0 + f64::from(slice * 37 % 80)).collect();
        assert_eq!(settles_after(&busy), Some(SLICES_ALIKE + 1));
        // Compilers of a JDK, and the moment at which they are through.
        let falling: Vec<f64> = (0..200).map(|slice| 4000.0 * 0.99_f64.powi(slice)).collect();
        assert_eq!(settles_after(&falling), None);
        let through = settles_after(&[&falling[..], &[540.0; 99]].concat()).unwrap();
        assert!((200..=200 + SLICES_ALIKE).contains(&through), "{through}");
    }
}
