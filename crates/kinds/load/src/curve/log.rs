//! An access log laid over a curve of reuse by hits: where its own reuse puts a site, for each session lifetime.

use serde::Serialize;
use tlsdyno_record::store::Record;
use tlsdyno_stats::reuse::{Crossing, HalfServingPoint, ReuseAxis};

use crate::LoadRecord;
use crate::curve::summary::CurveSummary;

/// The lifetime in sentences, seconds: the default of nginx and Apache, and the longest of those that Mraz et al. 2002
/// call typical.
pub const LIFETIME_S: u32 = 300;

/// A log compared with a curve by hits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogOnCurve {
    pub path: String,
    pub hits: u64,
    /// The lifetime counts from the user's last request, because each connection renews a session of TLS 1.3; else
    /// from the full handshake.
    pub is_renewed: bool,
    /// Half serving point to which the headroom refers, per cent.
    pub half_percent: Option<f64>,
    /// The half serving point is that of the fitted costs, beyond the levels.
    pub is_extrapolated: bool,
    pub lifetimes: Vec<Lifetime>,
}

/// Reuse and throughput of the log at one session lifetime.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lifetime {
    pub lifetime_s: u32,
    /// Reuse by hits that the log would give.
    pub percent: f64,
    /// Throughput by the fitted costs at this reuse.
    pub hits_per_second: Option<f64>,
    /// Percentage points above the half serving point; negative: below it.
    pub headroom_percent: Option<f64>,
}

impl LogOnCurve {
    /// `None` unless the record has a log and a curve by hits.
    pub fn of(record: &Record, curves: &[CurveSummary]) -> Option<LogOnCurve> {
        let log = record.kind_part.of::<LoadRecord>()?.log.as_ref()?;
        let curve = curves.iter().find(|curve| curve.by == ReuseAxis::Hits)?;
        let half = curve.half_serving_point.as_ref();
        let half_percent = half.and_then(percent_of);
        let is_renewed = record.manifest.negotiated.starts_with("1.3");
        let lifetime = |row: &tlsdyno_record::store::Row| {
            let unlimited = row.percent_by_limit.last().copied().unwrap_or(row.percent_renewed);
            let percent = if is_renewed { row.percent_renewed } else { unlimited };
            Lifetime {
                lifetime_s: row.lifetime_s,
                percent,
                hits_per_second: curve.costs.as_ref().map(|costs| costs.hits_per_second(f64::INFINITY, 1.0, percent)),
                headroom_percent: half_percent.map(|half| percent - half),
            }
        };
        Some(LogOnCurve {
            path: log.path.clone(),
            hits: log.hits,
            is_renewed,
            half_percent,
            is_extrapolated: half.is_some_and(|half| half.crossing == Crossing::Never),
            lifetimes: log.reuse.rows.iter().map(lifetime).collect(),
        })
    }

    /// The lifetime that sentences name ([`LIFETIME_S`]).
    pub fn typical(&self) -> Option<&Lifetime> {
        self.lifetimes.iter().find(|lifetime| lifetime.lifetime_s == LIFETIME_S)
    }
}

/// The half serving point, or the fitted one where it lies beyond the levels.
fn percent_of(half: &HalfServingPoint) -> Option<f64> {
    match half.crossing {
        Crossing::Never => half.percent_by_costs.map(|fit| fit.value),
        _ => half.percent_by_lines.map(|found| found.value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::file::Curve;
    use crate::file::LoadExperiment;
    use crate::{LoadRecord, LoggedReuse};
    use tlsdyno_record::store::{Block, Configuration, KindPart, Reuse, Row};

    /// 500 hits/s in plain HTTP, a handshake costs 50 of them: the half serving point is 98 %.
    fn record(negotiated: &str) -> Record {
        let plain = Some("http://localhost/".to_owned());
        let curve = Curve { by: vec![ReuseAxis::Hits], plain, ..Curve::default() };
        let places = curve.places();
        let mut record = Record::begun_now("q?", 1);
        record.manifest.negotiated = negotiated.to_owned();
        let rows = vec![Row { lifetime_s: 300, percent_by_limit: vec![80.0, 96.0], percent_renewed: 99.0 }];
        let reuse = Reuse { limits: vec![Some(10), None], rows };
        record.kind_part = KindPart::from(LoadRecord {
            experiment: LoadExperiment { curve: Some(curve), ..LoadExperiment::default() },
            log: Some(LoggedReuse { path: "access.log".to_owned(), hits: 1_000, reuse }),
            ..LoadRecord::default()
        });
        for (configuration, place) in places.iter().enumerate() {
            record.configurations.push(Configuration::setting("", place.percent.is_some(), Vec::new()));
            let reuse = place.percent.unwrap_or(100.0) / 100.0;
            let hits = 1_000_000;
            let per_second = tlsdyno_stats::papers::throughput_at_reuse(500.0, 50.0, reuse);
            record.blocks.extend((0..3).map(|round| Block {
                round,
                configuration,
                hits,
                elapsed_ns: (hits as f64 * 1e9 / per_second) as u64,
                handshakes_full: (hits as f64 * (1.0 - reuse)).round() as u64,
                valid: true,
                ..Block::default()
            }));
        }
        record
    }

    #[test]
    fn the_log_lies_where_its_reuse_is() {
        let of = |negotiated: &str| {
            let record = record(negotiated);
            LogOnCurve::of(&record, &CurveSummary::all(&record)).unwrap()
        };
        let old = of("1.2 TLS_RSA_WITH_AES_128_GCM_SHA256 none");
        let typical = old.typical().unwrap();
        assert!(!old.is_renewed && typical.percent == 96.0, "{old:?}");
        assert!((typical.headroom_percent.unwrap() + 2.0).abs() < 0.01, "{old:?}");
        assert!((typical.hits_per_second.unwrap() - 500.0 / 3.0).abs() < 0.1, "{old:?}");
        let new = of("1.3 TLS_AES_128_GCM_SHA256 X25519");
        assert!(new.is_renewed && (new.typical().unwrap().headroom_percent.unwrap() - 1.0).abs() < 0.01, "{new:?}");
    }
}
